"""Samples that are in the data twice: with the same bytes, or as pictures that look the same.

Copies have equal digests of their stored bytes. Pictures that look the same (saved again, resized) have perceptual
hashes that differ in a few of 64 bits. That also happens to different pictures of simple things, so their thumbnails
are compared as well.
"""

import hashlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from phalanx.data.augment.framing import Whole
from phalanx.data.base import Pixels
from phalanx.data.decode.images import BadImage
from phalanx.data.order import Indices
from phalanx.data.sources.labelled import Labelled

AT_ONCE = 256  # samples read together
SIDE = 32  # of a thumbnail
LUMA = np.array([0.299, 0.587, 0.114], dtype=np.float32)
# On photographs (imagenette, pets) the nearest different picture differs in 10 bits or more; a copy saved again at half
# the size differs in 0 to 4. On Fashion-MNIST half of all pictures have another one within 6 bits: only the thumbnails
# tell them apart, of which those of different pictures correlate by less than 0.99.
MAX_BITS = 6
MIN_CORRELATION = 0.99
PAIRS_AT_ONCE = 1 << 24  # hashes compared at a time, 8 bytes each

Grey = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Fingerprints:
    """Digest, perceptual hash and thumbnail of each sample of a split: 280 bytes a sample."""

    digests: list[bytes | None]  # None: it cannot be read
    hashes: npt.NDArray[np.uint64]
    thumbnails: Pixels  # (n, 16, 16), grey
    decoded: npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Copy:
    """Sample `index` of one split and sample `other` of another are the same picture; `exact`: byte for byte."""

    index: int
    other: int
    exact: bool


def fingerprints(source: Labelled, threads: int, advance: Callable[[int], None]) -> Fingerprints:
    """Fingerprints of all samples. `advance` is called with the number of samples done since the last call."""
    digests: list[bytes | None] = []
    hashes = np.zeros(len(source), dtype=np.uint64)
    thumbnails = np.zeros((len(source), SIDE // 2, SIDE // 2), dtype=np.uint8)
    decoded = np.zeros(len(source), dtype=np.bool_)
    with ThreadPoolExecutor(threads) as pool:
        for indices in _chunks(len(source)):
            digests += pool.map(lambda index: _digest(source, index), indices.tolist())
            read = source.read(indices, Whole(SIDE), 0, replace_bad=False)
            greys, used = _grey(read.images), read.indices
            hashes[used], thumbnails[used], decoded[used] = perceptual_hashes(greys), _halved(greys), True
            advance(len(indices))
    return Fingerprints(digests, hashes, thumbnails, decoded)


def copies_across(split: Fingerprints, others: Fingerprints) -> list[Copy]:
    """The samples of a split that are also in another, each with one sample there; exact copies win."""
    first: dict[bytes, int] = {}
    for index, digest in enumerate(others.digests):
        if digest is not None:
            first.setdefault(digest, index)
    found = {
        index: Copy(index, first[digest], exact=True)
        for index, digest in enumerate(split.digests)
        if digest is not None and digest in first
    }
    for index, other in _look_the_same(split, others):
        found.setdefault(index, Copy(index, other, exact=False))
    return [found[index] for index in sorted(found)]


def copies_within(split: Fingerprints) -> list[list[int]]:
    """Groups of samples of a split that have the same bytes."""
    groups: dict[bytes, list[int]] = {}
    for index, digest in enumerate(split.digests):
        if digest is not None:
            groups.setdefault(digest, []).append(index)
    return [group for group in groups.values() if len(group) > 1]


def perceptual_hashes(thumbnails: Grey) -> npt.NDArray[np.uint64]:
    """64 bits per thumbnail (n, 32, 32): which of its lowest frequencies are stronger than their median (pHash)."""
    places = 2 * np.arange(SIDE) + 1
    waves = np.cos(np.pi / (2 * SIDE) * np.outer(np.arange(8), places)).astype(np.float32)
    strengths = (waves @ thumbnails @ waves.T).reshape(-1, 64)
    strengths[:, 0] = -np.inf  # the mean brightness
    bits = strengths > np.median(strengths[:, 1:], axis=1, keepdims=True)
    return np.packbits(bits, axis=1).view(np.uint64)[:, 0]


def _look_the_same(split: Fingerprints, others: Fingerprints) -> Iterator[tuple[int, int]]:
    """Pairs of samples with nearly the same hash whose thumbnails are alike: of each sample, the best."""
    mine, theirs = np.flatnonzero(split.decoded), np.flatnonzero(others.decoded)
    if not len(mine) or not len(theirs):
        return
    step = max(1, PAIRS_AT_ONCE // len(theirs))
    for low in range(0, len(mine), step):
        part = mine[low : low + step]
        distances = np.bitwise_count(split.hashes[part, None] ^ others.hashes[None, theirs])
        rows, columns = np.nonzero(distances <= MAX_BITS)
        for row in np.unique(rows).tolist():
            near = theirs[columns[slice(*np.searchsorted(rows, [row, row + 1]))]]
            alike = _correlations(split.thumbnails[part[row]], others.thumbnails[near])
            if alike.max() >= MIN_CORRELATION:
                yield int(part[row]), int(near[int(alike.argmax())])


def _correlations(one: Pixels, many: Pixels) -> Grey:
    """Of one thumbnail with each of many. A blank one correlates with nothing."""

    def normal(thumbnails: Pixels) -> Grey:
        centred = thumbnails - thumbnails.mean(axis=(-2, -1), keepdims=True, dtype=np.float32)
        out: Grey = centred / np.maximum(centred.std(axis=(-2, -1), keepdims=True), 1.0)
        return out

    out: Grey = (normal(one) * normal(many)).mean(axis=(-2, -1))
    return out


def _halved(greys: Grey) -> Pixels:
    """Thumbnails of half the size."""
    small = greys.reshape(-1, SIDE // 2, 2, SIDE // 2, 2).mean(axis=(2, 4))
    out: Pixels = np.rint(small).astype(np.uint8)
    return out


def _grey(images: Pixels) -> Grey:
    pixels = images.astype(np.float32)
    grey: Grey = pixels @ LUMA if images.shape[-1] == 3 else pixels.mean(axis=-1)
    return grey


def _digest(source: Labelled, index: int) -> bytes | None:
    try:
        return hashlib.blake2b(source.stored(index), digest_size=16).digest()
    except (BadImage, OSError):  # `phalanx data verify` lists them
        return None


def _chunks(count: int) -> Iterator[Indices]:
    for low in range(0, count, AT_ONCE):
        yield np.arange(low, min(low + AT_ONCE, count), dtype=np.int64)
