"""Reads TensorBoard's event files: records with checksums, each an Event with numbers by tag."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from phalanx.errors import UserError
from phalanx.observe.curves import Log
from phalanx.observe.logs.names import TRAINING, VALIDATION, as_accuracy, curve_names, is_accuracy
from phalanx.observe.logs.rows import left_out
from phalanx.observe.logs.tensorboard_records import CHECKSUM, LENGTH, event_message, masked

TENSORBOARD = "TensorBoard's events.out.tfevents.* files"
LARGEST = 1 << 28  # bytes of a record; of a larger one the length must be damaged
_NUMPY = {1: "<f4", 2: "<f8", 3: "<i4", 9: "<i8", 19: "<f2"}  # numbers of TensorFlow's types


@dataclass
class Scalars:
    """The points of one tag: steps, times in seconds since 1970, values."""

    steps: list[int] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    values: list[float] = field(default_factory=list)


def is_event_file(path: Path) -> bool:
    return ".tfevents." in path.name


def event_files(folder: Path) -> list[Path]:
    """The event files below a folder."""
    return sorted(path for path in folder.rglob("*.tfevents.*") if path.is_file())


def read_tensorboard(files: Sequence[Path], folder: Path, label: str, tags: Mapping[str, str]) -> Log:
    """One log from the event files of a run. Tags of files in train/ or validation/, as of Keras, are of that part."""
    found: dict[str, Scalars] = {}
    files, notes = _of_one_run(files, folder)
    for path in files:
        part = _part(path.parent.relative_to(folder).parts)
        complaint = _read(path, part, found)
        if complaint:
            notes.append(f"{path.name}: {complaint}")
    log = Log(label, notes=notes)
    curves = curve_names(found, tags)
    epochs = _epochs_of(found)
    begin = min((min(one.times) for one in found.values() if one.times), default=0.0)
    for tag, scalars in found.items():
        scalars.times = [time - begin for time in scalars.times]
        if tag.rpartition("/")[2].startswith("epoch_"):  # Keras counts epochs in the steps of these
            _add(log, curves[tag], scalars, [None] * len(scalars.steps), [step + 1.0 for step in scalars.steps])
        else:
            _add(log, curves[tag], scalars, scalars.steps, _at(scalars.steps, epochs))
    return log


def _of_one_run(files: Sequence[Path], folder: Path) -> tuple[Sequence[Path], list[str]]:
    """The files of one run, and a note if others are below it. Several runs are refused."""
    homes: dict[Path, list[Path]] = {}
    for path in files:
        parent = path.parent
        while parent != folder and _part((parent.name,)):
            parent = parent.parent
        homes.setdefault(parent, []).append(path)
    if len(homes) == 1:
        return files, []
    if folder in homes:
        others = len(files) - len(homes[folder])
        return homes[folder], [f"{others:,} event files of folders below it are left out"]
    names = sorted(str(home.relative_to(folder)) for home in homes)
    raise UserError(
        f"{folder} has event files of {len(homes)} runs",
        why=f"they are in {', '.join(names[:8])}{' …' if len(names) > 8 else ''}",
        remedy=f"name each: phalanx plot {folder / names[0]} {folder / names[1]}",
    )


def _part(folders: tuple[str, ...]) -> str:
    """The prefix of tags of files in these folders."""
    for name in map(str.lower, reversed(folders)):
        if name in VALIDATION or name in TRAINING:
            return "validation/" if name in VALIDATION else "train/"
    return ""


def _add(log: Log, curve: str, scalars: Scalars, steps: Sequence[float | None], epochs: Sequence[float | None]) -> None:
    percent = not is_accuracy(curve) or max(scalars.values, default=0.0) > 1
    for value, time, step, epoch in zip(scalars.values, scalars.times, steps, epochs, strict=True):
        shown, number = as_accuracy(curve, value if percent else 100 * value)
        log.add(shown, number, step=step, epoch=epoch, time=time)


def _epochs_of(found: Mapping[str, Scalars]) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]] | None:
    """Steps and the epochs at them, from the tag that counts epochs: of Lightning, of Hugging Face's Trainer."""
    named = [tag for tag in found if tag.rpartition("/")[2] == "epoch" and len(set(found[tag].values)) > 1]
    if not named:
        return None
    order = np.argsort(found[named[0]].steps, kind="stable")
    steps = np.asarray(found[named[0]].steps, np.float64)[order]
    values = np.asarray(found[named[0]].values, np.float64)[order]
    if np.all(values == np.round(values)):  # epochs begun: only where one begins is exact
        _, firsts = np.unique(values, return_index=True)
        steps, values = steps[firsts], values[firsts]
    return steps, values


def _at(
    places: Sequence[int], epochs: tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]] | None
) -> Sequence[float | None]:
    """The epochs at some steps; before and after those that are known, at the same pace."""
    if epochs is None:
        return [None] * len(places)
    steps, values = epochs
    at = np.asarray(places, np.float64)
    pace = (values[-1] - values[0]) / max(1.0, steps[-1] - steps[0])
    outside = np.minimum(0, at - steps[0]) + np.maximum(0, at - steps[-1])
    found: list[float | None] = np.maximum(0, np.interp(at, steps, values) + pace * outside).tolist()
    return found


def _read(path: Path, part: str, found: dict[str, Scalars]) -> str:
    """Add the scalars of a file. Returns what is wrong with it, if something is."""
    event_class, decode_error = event_message()
    records = _Records(path.read_bytes())
    for record in records:
        event = event_class()
        try:
            event.ParseFromString(bytes(record))
        except decode_error:
            records.damaged += 1
            continue
        for value in event.summary.value:
            number = _scalar(value)
            if number is not None:
                scalars = found.setdefault(part + value.tag, Scalars())
                scalars.steps.append(event.step)
                scalars.times.append(event.wall_time)
                scalars.values.append(number)
    return records.complaint


@dataclass
class _Records:
    """The records whose checksums fit. Where that of a length does not, the rest cannot be read."""

    data: bytes
    damaged: int = 0
    cut_at: int | None = None

    def __iter__(self) -> Iterator[memoryview]:
        place, view = 0, memoryview(self.data)
        while place < len(view):
            begin = place + LENGTH.size
            length, checksum = LENGTH.unpack_from(view, place) if begin <= len(view) else (0, -1)
            end = begin + length
            if masked(view[place : place + 8]) != checksum or length > LARGEST or end + CHECKSUM.size > len(view):
                self.cut_at = place
                return
            if masked(view[begin:end]) == CHECKSUM.unpack_from(view, end)[0]:
                yield view[begin:end]
            else:
                self.damaged += 1
            place = end + CHECKSUM.size

    @property
    def complaint(self) -> str:
        said = left_out(self.damaged, "record")
        if self.cut_at is not None:
            said.append(f"it is damaged or cut off after {self.cut_at:,} bytes, and the rest is left out")
        return "; ".join(said)


def _scalar(value: Any) -> float | None:
    """The number of a summary's value: the older simple_value, or a tensor of one element. None of anything else."""
    kind = value.WhichOneof("value")
    if kind == "simple_value":
        number = float(value.simple_value)
    elif kind == "tensor" and value.tensor.dtype in _NUMPY:
        found = _elements(value.tensor)
        if len(found) != 1:
            return None
        number = float(found[0])
    else:
        return None
    return number if math.isfinite(number) else None


def _elements(tensor: Any) -> Any:
    if tensor.tensor_content:
        return np.frombuffer(tensor.tensor_content, _NUMPY[tensor.dtype])
    return [*tensor.float_val, *tensor.double_val, *tensor.int_val, *tensor.int64_val]
