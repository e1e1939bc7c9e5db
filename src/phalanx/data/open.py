"""From what the user wrote (`digits`, a path, FORMAT:PATH) to a training and a validation split."""

import re
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from pathlib import Path

from phalanx.config.schema import DataConfig
from phalanx.data.base import Source
from phalanx.data.cifar import find_cifar, has_pickles, open_cifar
from phalanx.data.divide import hold_out, under_classes
from phalanx.data.embedded import open_digits, open_synthetic
from phalanx.data.encoded import decode_pool
from phalanx.data.files import FileSource, look, open_class_folders
from phalanx.data.idx import find_idx, open_idx
from phalanx.data.labelled import Labelled, Part
from phalanx.data.lists import open_flat_folder, open_list
from phalanx.errors import UserError, nearest

VAL_NAMES = ("val", "valid", "validation", "test")
LIST_ENDINGS = (".txt", ".lst", ".list", ".tsv")


@dataclass(frozen=True)
class Splits:
    """The data of a run. `notes` is what a person should know about how it was found."""

    train: Source
    val: Source
    notes: list[str]


@dataclass(frozen=True)
class Want:
    """What an opener is asked for. `classes` are those of the training data or model, once they are known."""

    part: Part
    config: DataConfig
    channels: int | None
    pool: Executor | None
    classes: list[str] | None = None


@dataclass(frozen=True)
class Format:
    """One way to keep data. `open` gives the wanted part, or None where the data has no validation part."""

    looks_like: str  # for the error that lists what is understood
    recognises: Callable[[Path], bool]
    open: Callable[[Path, Want], Labelled | None]


def open_data(config: DataConfig, *, threads: int) -> Splits:
    """The training and validation splits of a run, under the same classes, statistics and channels."""
    want = Want("train", config, config.channels, decode_pool(threads))
    train = _open(config.source, want)
    want = replace(want, part="val", channels=train.channels, classes=train.classes)
    val, notes = None, []
    ...
