"""Names of packed images: those of the files that they came from, where they are known."""

import re
from pathlib import PurePosixPath

import numpy as np
import numpy.typing as npt

from phalanx.data.pack.endings import with_ending_of
from phalanx.data.sources.encoded import EncodedSubset
from phalanx.data.sources.folders import IMAGE_ENDINGS, FileSource, Names
from phalanx.data.sources.labelled import Labelled

ENDINGS = tuple(ending.decode() for ending in IMAGE_ENDINGS)
MEMBER = re.compile(r"(?:/|: )([^/:]+)$")  # at the end of a sample's name: `a.tar: n01/a.jpg`
MAX_STEM_BYTES = 200  # leaves room for a number and an ending in the 255 of a file's name


def original_name(source: Labelled, index: int) -> str | None:
    """The name of the file that a sample came from, without its folder; None where it is only a number in a file."""
    if isinstance(source, EncodedSubset):
        return original_name(source.parent, int(source.chosen[index]))
    if isinstance(source, FileSource):
        return PurePosixPath(source.name(index)).name
    match = MEMBER.search(source.name(index))
    return match[1] if match and match[1].lower().endswith(ENDINGS) else None


def named_by_content(source: Labelled, index: int, data: bytes) -> str | None:
    """The same, with the ending of what is in it now."""
    name = original_name(source, index)
    return None if name is None else with_ending_of(PurePosixPath(name).stem, original_ending(source, index), data)


def original_ending(source: Labelled, index: int) -> str:
    """The ending of that file's name, without the dot; or empty."""
    return PurePosixPath(original_name(source, index) or "").suffix.removeprefix(".")


def unique_stems(source: Labelled) -> Names:
    """The name of each sample, without an ending, unique in its class also where upper case does not count.

    It is that of its original file. Where that is unknown, not unique or not fit for a file's name, the sample's
    number is added or taken instead.
    """
    original = Names(_stem(source, index).encode() for index in range(len(source)))
    kept = np.array([bool(original[index]) for index in range(len(source))], dtype=np.bool_)
    while True:
        stems = Names(_numbered(original[index], index, keep) for index, keep in enumerate(kept.tolist()))
        again = kept & _repeated(stems, source)
        if not again.any():
            return stems
        kept &= ~again  # a name with a number may be that of another file, so the next round looks again


def _numbered(stem: bytes, index: int, keep: bool) -> bytes:
    if keep:
        return stem
    return stem + b"-%08d" % index if stem else b"%08d" % index


def _repeated(stems: Names, source: Labelled) -> npt.NDArray[np.bool_]:
    """Whether another sample of the same class has the same name. A hash of each takes little memory."""
    labels = source.labels.tolist()
    hashes = np.array([hash((label, stems[index].decode().casefold())) for index, label in enumerate(labels)])
    _, places, counts = np.unique(hashes, return_inverse=True, return_counts=True)
    repeated: npt.NDArray[np.bool_] = counts[places] > 1
    return repeated


def _stem(source: Labelled, index: int) -> str:
    """The original file's name without its ending, if it can be a file's name anywhere; else empty."""
    stem = PurePosixPath(original_name(source, index) or "").stem
    fit = stem == stem.strip() and stem.isprintable() and not stem.startswith(".") and "\\" not in stem
    return stem if fit and len(stem.encode()) <= MAX_STEM_BYTES else ""
