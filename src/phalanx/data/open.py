"""From what the user wrote (`digits`, a path, FORMAT:PATH) to a training and a validation split."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from phalanx.config.schema import DataConfig
from phalanx.data.base import Source
from phalanx.data.divide import hold_out, under_classes
from phalanx.data.encoded import decode_pool
from phalanx.data.files import FileSource
from phalanx.data.formats import FORMATS, Want, recognise
from phalanx.data.labelled import Labelled
from phalanx.errors import UserError


@dataclass(frozen=True)
class Splits:
    """The data of a run. `notes` is what a person should know about how it was found."""

    train: Source
    val: Source
    notes: list[str]


def open_data(config: DataConfig, *, threads: int) -> Splits:
    """The training and validation splits of a run, under the same classes, channels and statistics.

    `threads` decode compressed images, for both splits together; with 0 whoever reads decodes.
    """
    pool = decode_pool(threads)
    with _unreadable_is_told(config.source):
        name, path = recognise(config.source)
        train = FORMATS[name].train(path, Want(config, config.channels, pool))
    notes = [*train.notes]
    want = Want(config, train.channels, pool, train.classes)
    with _unreadable_is_told(config.val or config.source):
        val = FORMATS[name].val(path, want) if config.val is None else _open_one(config.val, want)
    if val is None:
        train, val, told = hold_out(train, config.val_share, config.source)
    else:
        notes += val.notes
        val, told = under_classes(val, train.classes, f"the validation data ({config.val or config.source})")
    _refuse_unused_labels(config, val)
    val = replace(val, image_size=train.image_size, mean=train.mean, std=train.std)
    return Splits(train, val, [*notes, *told])


def open_split(text: str, config: DataConfig, classes: list[str], *, threads: int) -> Labelled:
    """One dataset to evaluate a model of these classes on: its validation part, or all of it where it has none."""
    want = Want(config, config.channels, decode_pool(threads), classes)
    with _unreadable_is_told(text):
        source = _open_one(text, want)
    source, told = under_classes(source, classes, text)
    return replace(source, notes=(*source.notes, *told))


def _open_one(text: str, want: Want) -> Labelled:
    name, path = recognise(text)
    # A file is meant as it is named. Only a folder may hold more than what is wanted.
    val = None if path.is_file() else FORMATS[name].val(path, want)
    return FORMATS[name].train(path, want) if val is None else val


@contextmanager
def _unreadable_is_told(text: str) -> Iterator[None]:
    """What the system refuses, such as a file without permission, is the user's to mend, whatever the format."""
    try:
        yield
    except OSError as error:
        raise UserError(
            f"the data {text!r} cannot be read",
            why=f"{error.strerror or error}" + (f": {str(error.filename)[:200]}" if error.filename else ""),
            remedy="check the path and its permissions",
        ) from error


def _refuse_unused_labels(config: DataConfig, val: Labelled) -> None:
    """A list of labels that labels nothing is a request that would be dropped silently."""
    if config.val_labels is None or (isinstance(val, FileSource) and val.label_list == config.val_labels):
        return
    raise UserError(
        f"data.val_labels={config.val_labels} is not used",
        why=f"it is for a folder with validation images directly in it, and the validation data is {val.description}",
        remedy="leave it out, or name that folder with data.val",
    )
