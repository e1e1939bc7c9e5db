"""What a user names for `predict`: image files, folders of them, and data of every format that training takes."""

import glob
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np

from phalanx.commands.loading import Trained
from phalanx.commands.other_data import other_data
from phalanx.config.resolve import Layer
from phalanx.data.sources.encoded import decode_pool, decoded_as
from phalanx.data.sources.folders import IMAGE_ENDINGS, FileSource, Names, file_source, images_below
from phalanx.data.sources.formats import FORMATS, recognise
from phalanx.data.sources.holdout import with_classes
from phalanx.data.sources.labelled import Labelled
from phalanx.data.sources.open import open_whole
from phalanx.data.sources.remote.addresses import is_remote
from phalanx.errors import UserError

Split = Literal["all", "train", "val"]
SPLITS: tuple[Split, ...] = ("all", "train", "val")
NO_LABEL = -1
Input = list[bytes] | str  # image files, or data by the name that `--data` would take


def find_inputs(words: Sequence[str]) -> list[Input]:
    """Image files from names, folders (with subfolders) and globs, each once; and other data. In the given order."""
    found: list[Input] = []
    seen = set[bytes]()
    for word in words:
        for one in _inputs(word):
            if isinstance(one, str):
                found.append(one)
                continue
            new = [file for file in dict.fromkeys(one) if file not in seen]
            seen.update(new)
            if found and isinstance(found[-1], list):
                found[-1] += new
            elif new:
                found.append(new)
    return found


def _inputs(word: str) -> list[Input]:
    path = Path(word)
    if is_remote(word):
        return [word]
    if path.is_dir():
        # A folder with images is all of them, also where they are in class folders.
        files = [os.fsencode(path / os.fsdecode(name)) for name in images_below(path).images]
        if files:
            return [files]
        if _is_data(word):
            return [word]
        raise _nothing_at(word, "the folder has no image files, and no data of a known format")
    if path.exists():
        is_image = os.fsencode(word).lower().endswith(IMAGE_ENDINGS)
        return [[os.fsencode(path)]] if is_image or not _is_data(word) else [word]
    # Path.glob refuses patterns that begin at the root
    matches = sorted(glob.glob(word, recursive=True))  # noqa: PTH207
    pieces = [piece for match in matches for piece in _inputs(match)]
    if pieces and not all(isinstance(piece, str) for piece in pieces):
        return pieces
    if _is_data(word):  # several files as one dataset, a FORMAT:PATH, or a name
        return [word]
    if pieces:
        return pieces
    if word.partition(":")[0] in FORMATS:
        recognise(word)  # which says what is wrong
    raise _nothing_at(word, f"no file, folder or pattern matches in {Path.cwd()}")


def _is_data(word: str) -> bool:
    try:
        recognise(word)
    except UserError:
        return False
    return True


def _nothing_at(word: str, why: str) -> UserError:
    return UserError(
        f"there is no image at {word!r}",
        why=why,
        remedy="give image files, folders or globs such as 'photos/*.jpg', or data as `phalanx train --data` takes it",
    )


def open_inputs(
    inputs: Sequence[Input], trained: Trained, split: Split = "all", settings: Sequence[Layer] = ()
) -> Iterator[Labelled]:
    """A source for each input, for the model. Only data of other formats than image files has labels."""
    for one in inputs:
        if isinstance(one, str):
            yield from open_for_prediction(one, trained, split, settings)
        else:
            yield file_images(one, trained)


def file_images(names: list[bytes], trained: Trained) -> FileSource:
    """Image files as a source. Their labels are not used."""
    spec = trained.spec
    return file_source(
        "the images",
        Path(),
        Names(names),
        np.full(len(names), NO_LABEL, dtype=np.int64),
        spec.classes,
        channels=spec.channels,
        pool=decode_pool(trained.threads),
    )


def true_label(source: Labelled, index: int) -> str | None:
    """The name of a sample's class in its data; None for image files."""
    labels = source.labels[index]
    if source.multi_label:
        return ", ".join(source.classes[number] for number in np.flatnonzero(labels))
    return None if labels == NO_LABEL else source.classes[int(labels)]


def open_for_prediction(
    text: str, trained: Trained, split: Split = "all", settings: Sequence[Layer] = ()
) -> Iterator[Labelled]:
    """The parts of data, with the model's class names where they fit; predictions need no known classes."""
    config = other_data(trained, text, settings)
    parts = open_whole(text, config, threads=trained.threads)
    if split != "all" and split not in parts:
        raise UserError(
            f"{text} has no {split} split",
            why=f"it has {' and '.join(parts)}",
            remedy="leave --split out, or name the files of that split",
        )
    for part, source in parts.items():
        if split in ("all", part):
            yield decoded_as(config, _with_known_classes(source, trained, text))


def _with_known_classes(source: Labelled, trained: Trained, text: str) -> Labelled:
    try:
        return with_classes(replace(source, notes=()), trained.spec.classes, text)[0]
    except UserError:
        return source
