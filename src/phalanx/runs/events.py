"""Events: the one schema of what happens in a run. docs/run-folder.md documents every field."""

import contextlib
import heapq
import json
import math
import os
import threading
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Protocol

from phalanx.atomic import sync_names
from phalanx.errors import UserError
from phalanx.runs.score import TOP1, score_of

EVENTS_FILE = "events.jsonl"
EVALUATOR_EVENTS_FILE = "events-evaluator.jsonl"  # each file has one writer; readers merge both

Record = dict[str, Any]  # an event as JSON


TIMES = ("data", "compute", "exchange", "update")  # the parts of a step's time; fields of a step event, with _s


@dataclass(frozen=True)
class Event:
    """Something that happened in a run. Subclasses add their fields; `kind` names them in the file."""

    kind: ClassVar[str]


@dataclass(frozen=True)
class Start(Event):
    kind: ClassVar[str] = "start"
    command: str
    model: str
    parameters: int
    data: str
    train_samples: int
    val_samples: int
    classes: int
    steps_per_epoch: int
    total_steps: int
    samples_per_step: int
    decisions: dict[str, str]  # setting → "value (reason)"
    notes: list[str]
    epoch_samples: int | None = None  # with repeats (data.sampling); older runs: train_samples


@dataclass(frozen=True)
class Resume(Event):
    """Training continues from a checkpoint. Earlier events with a step after `saved_step` are void.

    The two steps differ if samples per step have changed, because steps are then recounted.
    """

    kind: ClassVar[str] = "resume"
    step: int
    saved_step: int
    checkpoint: str
    warnings: list[str]


@dataclass(frozen=True)
class Step(Event):
    """Means over the steps since the last such event; the times are seconds per step."""

    kind: ClassVar[str] = "step"
    step: int
    epoch: int
    batch: int
    batches: int
    loss: float
    top1: float | None  # None where a sample may have several labels
    topk: float | None
    lr: float
    samples_per_s: float
    data_s: float
    compute_s: float
    exchange_s: float
    update_s: float
    grad_norm: float | None = None
    bytes_sent: float = 0.0
    bytes_received: float = 0.0
    compression_ratio: float | None = None  # bytes of the gradients over bytes sent, with compression
    ranks: list[dict[str, float]] = field(default_factory=list)
    details: dict[str, Any] = field(default_factory=dict)
    used: list[list[int]] = field(default_factory=list)  # [epoch, first, one after the last] of the epoch's order
    lr_first: float | None = None  # `lr` is the rate of the last of these steps, this of the first
    metrics: dict[str, float] = field(default_factory=dict)  # f1_micro where a sample may have several labels
    k: int = 1  # of topk; 1: it is not shown


@dataclass(frozen=True)
class DataService(Event):
    """Statistics of the data servers since the last step event, as this worker sees them."""

    kind: ClassVar[str] = "data_service"
    step: int
    wait_share: float  # share of this worker's time spent waiting for data
    servers: list[dict[str, Any]]  # each with its address, rates, queue and idle share

    @property
    def trainers_wait(self) -> bool:
        """Whether workers wait for data, and not the other way round."""
        return self.wait_share > 0.05


@dataclass(frozen=True)
class System(Event):
    """What the first worker's host and process use, since the last such event; comes with each step event."""

    kind: ClassVar[str] = "system"
    step: int
    host: str
    cpu: float | None  # share of the host's cores that was busy
    process_cpu: float  # cores that this process kept busy
    memory: int | None  # bytes in use on the host
    memory_total: int | None
    process_memory: int | None  # resident bytes
    gpus: list[dict[str, Any]] = field(default_factory=list)  # each with gpu, memory, memory_total, peak, use


@dataclass(frozen=True)
class Norms(Event):
    kind: ClassVar[str] = "norms"
    step: int
    parameters: dict[str, float]
    gradients: dict[str, float]


@dataclass(frozen=True)
class Epoch(Event):
    kind: ClassVar[str] = "epoch"
    step: int
    epoch: int
    loss: float
    top1: float | None
    topk: float | None
    samples: int
    metrics: dict[str, float] = field(default_factory=dict)
    k: int = 1


@dataclass(frozen=True)
class Eval(Event):
    kind: ClassVar[str] = "eval"
    step: int
    epoch: float
    loss: float
    top1: float | None  # None where a sample may have several labels
    topk: float | None
    k: int
    samples: int
    seconds: float
    best: bool
    metrics: dict[str, float] = field(default_factory=dict)  # mAP and F1 of several labels; the user's own, by name
    metric: str = TOP1  # what it is judged by: top1, or a name in `metrics`

    @property
    def score(self) -> float:
        return score_of(self.metric, self.top1, self.metrics)


@dataclass(frozen=True)
class Checkpoint(Event):
    kind: ClassVar[str] = "checkpoint"
    step: int
    path: str
    seconds: float
    bytes: int


@dataclass(frozen=True)
class BadImage(Event):
    kind: ClassVar[str] = "bad_image"
    step: int
    name: str
    reason: str


@dataclass(frozen=True)
class Note(Event):
    """A message for the user, such as a skipped update."""

    kind: ClassVar[str] = "note"
    step: int
    text: str


@dataclass(frozen=True)
class Callback(Event):
    """Numbers that a callback of the user returned."""

    kind: ClassVar[str] = "callback"
    step: int
    name: str  # of the callback
    method: str  # on_step, on_epoch, …
    values: dict[str, float]


@dataclass(frozen=True)
class Stop(Event):
    """Training stopped before its end."""

    kind: ClassVar[str] = "stop"
    step: int
    reason: str


@dataclass(frozen=True)
class End(Event):
    kind: ClassVar[str] = "end"
    step: int
    wall_s: float


class Sink(Protocol):
    """A destination of events: a file, the screen."""

    def take(self, event: Event) -> None: ...

    def close(self) -> None: ...


@dataclass
class Observer:
    """Passes each event to every sink, in order. Thread-safe: notes may come from background threads.

    A sink may have a note of its own to emit while it takes an event.
    """

    sinks: list[Sink] = field(default_factory=list)
    _one_at_a_time: threading.RLock = field(default_factory=threading.RLock, init=False, repr=False)
    _last: deque[Record] = field(default_factory=lambda: deque(maxlen=16), repr=False)

    def emit(self, event: Event) -> None:
        with self._one_at_a_time:
            for sink in self.sinks:
                sink.take(event)
            self._last.append(record_of(event))

    def recent(self, step: int) -> list[Record]:
        """The events of a step. Checkpoints keep them: the worker that writes the file may die before it does."""
        return [record for record in self._last if record.get("step") == step]

    def close(self) -> None:
        for sink in self.sinks:
            sink.close()


_LONGEST_LINE = 1 << 24  # characters: events are small, and a broken file may have no line ends
_BLOCK = 1 << 20  # bytes that are searched for a line end at a time
# After these a run can be resumed, or is over: its history is then on the disk. Each line would take too long.
_DURABLE = (Checkpoint, Stop, End)


class AppendedLines:
    """A text file to which lines are appended and flushed. A full disk is a UserError."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._file = path.open("a", encoding="utf-8")
        except OSError as error:
            raise self._unwritable(error) from error

    def line(self, text: str) -> None:
        try:
            self._file.write(text + "\n")
            self._file.flush()
        except OSError as error:
            raise self._unwritable(error) from error

    def sync(self) -> None:
        """Have all lines, and the file's name, on the disk."""
        try:
            os.fsync(self._file.fileno())
        except OSError as error:
            raise self._unwritable(error) from error
        sync_names(self.path.parent)

    def close(self) -> None:
        with contextlib.suppress(OSError):  # an unwritten line has already raised its error
            self._file.close()

    def _unwritable(self, error: OSError) -> UserError:
        return UserError(
            f"{self.path} cannot be written",
            why=error.strerror or str(error),
            remedy="free some space or fix the permissions, then use --resume: checkpoints already saved are valid",
        )


class EventFile:
    """Writes events as JSON lines."""

    def __init__(self, run: Path, name: str = EVENTS_FILE) -> None:
        _cut_unfinished_line(run / name)
        self._lines = AppendedLines(run / name)

    def take(self, event: Event) -> None:
        self.record(record_of(event))
        if isinstance(event, _DURABLE):
            self._lines.sync()

    def record(self, record: Record) -> None:
        self._lines.line(json.dumps(record, allow_nan=False, ensure_ascii=False))

    def close(self) -> None:
        self._lines.close()


def record_of(event: Event) -> Record:
    """An event as JSON."""
    record = {"t": round(time.time(), 3), "kind": event.kind, **asdict(event)}
    return {key: _finite(value) for key, value in record.items()}


def write_missing(run: Path, records: list[Record]) -> None:
    """Write a checkpoint's events that the run's file lacks: another worker may have saved the checkpoint."""
    there = {(record["kind"], record.get("step")) for record in read_events(run)}
    missing = [record for record in records if (record["kind"], record.get("step")) not in there]
    if missing:
        file = EventFile(run)
        for record in missing:
            file.record(record)
        file.close()


def _cut_unfinished_line(path: Path) -> None:
    """Remove an incomplete last line, which a process left that died while it wrote."""
    if path.is_file() and (end := end_of_lines(path)) < path.stat().st_size:
        os.truncate(path, end)


def end_of_lines(path: Path) -> int:
    """Where a file's last complete line ends. What follows may be of any length: it is read in blocks, backwards."""
    with path.open("rb") as file:
        end = file.seek(0, os.SEEK_END)
        while end:
            begin = max(0, end - _BLOCK)
            file.seek(begin)
            if (found := file.read(end - begin).rfind(b"\n")) >= 0:
                return begin + found + 1
            end = begin
    return 0


def _finite(value: Any) -> Any:
    """JSON has no NaN: numbers that are not finite become null."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: _finite(inner) for key, inner in value.items()}
    return value


def read_events(run: Path, *, superseded: bool = False) -> list[Record]:
    """The events of a run in order of time, without those that a resume made void, or an incomplete last line."""
    path = run / EVENTS_FILE
    if not path.is_file():
        from phalanx.runs.fold_paths import refuse_cross_validation  # here, because it imports this module

        refuse_cross_validation(run)
        raise UserError(
            f"{run} is not a run", why=f"it has no {EVENTS_FILE}", remedy="give the folder that `phalanx train` named"
        )
    files = [_records(each) for each in (path, run / EVALUATOR_EVENTS_FILE) if each.is_file()]
    kept: list[Record] = []
    for record in heapq.merge(*files, key=lambda record: record["t"]):
        if record["kind"] == Resume.kind and not superseded:
            kept = [earlier for earlier in kept if earlier.get("step", 0) <= record["saved_step"]]
        kept.append(record)
    return kept


def _records(path: Path) -> Iterator[Record]:
    from phalanx.runs.event_schema import read_record  # here, because it imports this module

    with path.open(encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(iter(lambda: file.readline(_LONGEST_LINE), ""), 1):
            try:
                if len(line) == _LONGEST_LINE:
                    raise ValueError(f"it has more than {_LONGEST_LINE:,} characters")
                record = read_record(line)
            except ValueError as error:
                if not line.endswith("\n") and len(line) < _LONGEST_LINE:
                    return  # the process died while writing it
                raise UserError(
                    f"{path}, line {number} is not an event", why=str(error), remedy="remove the line"
                ) from error
            yield record
