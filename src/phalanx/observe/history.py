"""The events of one run, read as they grow. Steps are kept as columns of numbers, and only while someone looks.

A table of 200 runs needs the last step of each, and every rare event: the other lines of steps are then skipped unread.
Of the events that come with each step, the latest is kept. `read_events` reads everything and checks it; this reads
what is there, and says what it could not read.
"""

import contextlib
import os
import re
import threading
from array import array
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from phalanx.observe.slowness import Slowness
from phalanx.runs.event_schema import read_record
from phalanx.runs.events import EVALUATOR_EVENTS_FILE, EVENTS_FILE, Record
from phalanx.runs.inside import open_inside

COLUMNS = (
    *("step", "t", "loss", "top1", "lr", "grad_norm", "samples_per_s"),
    *("data_s", "compute_s", "exchange_s", "update_s", "bytes_sent", "bytes_received", "staleness"),
)
_KIND = re.compile(rb'.{0,40}"kind": "([a-z_]+)"')
# Kinds that come with each step, or each few: of a long run there are as many as steps.
_FREQUENT = frozenset({"system", "data_service", "norms", "epoch", "callback"})
_MOST_REMARKS = 5
_MOST_OTHERS = 4000  # events that are not steps; of more, the latest
_MOST_SPEEDS = 20  # step events from which the present speed is taken
_CHUNK = 4 << 20


@dataclass
class _File:
    """How far a file was read. `identity` changes if it was replaced."""

    name: str
    position: int = 0
    lines: int = 0
    identity: tuple[int, int] | None = None


@dataclass
class History:
    """What a run's event files say so far. `refresh` reads what was added. Use it under `lock`."""

    path: Path
    has_steps: bool = False  # whether `columns` are filled
    lock: threading.RLock = field(default_factory=threading.RLock, repr=False)

    def __post_init__(self) -> None:
        self._clear()

    def _clear(self) -> None:
        self._files = [_File(EVENTS_FILE), _File(EVALUATOR_EVENTS_FILE)]
        self.others: list[Record] = []  # rare events, in the order of the files
        self.latest: dict[str, Record] = {}  # of the frequent kinds
        self.last_steps: list[Record] = []  # the latest step events
        self.columns: dict[str, array[float]] = {name: array("d") for name in COLUMNS}
        self.slowness = Slowness()
        self.pauses: list[tuple[float, float]] = []  # (when it ended, seconds): before a resume
        self.first_t: float | None = None
        self.last_t: float | None = None
        self.remarks: list[str] = []
        self.present = False

    def forget_steps(self) -> None:
        """Free the memory of the steps."""
        with self.lock:
            self.has_steps = False
            self._clear()

    def refresh(self, *, steps: bool = False) -> None:
        """Read what the files have gained; with `steps`, the columns too."""
        with self.lock:
            if steps and not self.has_steps:
                self.has_steps = True
                self._clear()
            for file in self._files:
                if self._is_another(file):
                    self._clear()
                    break
            for file in self._files:
                self._read(file)

    def _is_another(self, file: _File) -> bool:
        """Whether a file is shorter than before, or not the same: then all is read again."""
        with contextlib.suppress(OSError):
            about = (self.path / file.name).lstat()
            same = file.identity in (None, (about.st_dev, about.st_ino))
            return not same or about.st_size < file.position
        return False

    def _read(self, file: _File) -> None:
        try:
            opened = open_inside(self.path, file.name)
        except FileNotFoundError:
            return
        except OSError as error:
            self._remark(f"{file.name} cannot be read: {error.strerror or error}")
            return
        with opened:
            about = os.fstat(opened.fileno())
            file.identity = about.st_dev, about.st_ino
            self.present |= file.name == EVENTS_FILE
            opened.seek(file.position)
            rest = b""
            while chunk := opened.read(_CHUNK):
                lines = (rest + chunk).split(b"\n")
                rest = lines.pop()
                if len(rest) > _CHUNK:
                    self._remark(f"{file.name} has a line of more than {_CHUNK >> 20} MiB, not read on")
                    return
                self._take_lines(file, lines)

    def _take_lines(self, file: _File, lines: list[bytes]) -> None:
        kinds = [_kind(line) for line in lines]
        skipped = self._skipped(kinds)
        for number, line in enumerate(lines):
            file.position += len(line) + 1
            file.lines += 1
            if number in skipped:
                continue
            try:
                self._take(read_record(line))
            except ValueError as error:
                self._remark(f"{file.name}, line {file.lines} is not an event: {str(error)[:200]}")

    def _skipped(self, kinds: list[str]) -> set[int]:
        """Lines that need not be read: frequent kinds but for the latest; steps too, unless someone looks at them."""
        found = {number for number, kind in enumerate(kinds) if kind in _FREQUENT}
        found -= set({kind: number for number, kind in enumerate(kinds)}.values())
        if not self.has_steps:
            found.update([number for number, kind in enumerate(kinds) if kind == "step"][:-_MOST_SPEEDS])
        return found

    def _take(self, record: Record) -> None:
        kind, t = record["kind"], float(record["t"])
        if kind == "start" and self.last_t is not None:
            self.pauses.append((t, max(0.0, t - self.last_t)))
        self.first_t = t if self.first_t is None else min(self.first_t, t)
        self.last_t = t if self.last_t is None else max(self.last_t, t)
        if kind == "step":
            self._take_step(record)
            return
        if kind in _FREQUENT:
            self.latest[kind] = record
            return
        if kind == "resume":
            self._void(record)
        self.others.append(record)
        if len(self.others) > _MOST_OTHERS + 1000:  # the start and the evaluations stay
            early, late = self.others[:-_MOST_OTHERS], self.others[-_MOST_OTHERS:]
            self.others = [one for one in early if one["kind"] in ("start", "eval", "resume", "end", "stop")] + late

    def _take_step(self, record: Record) -> None:
        self.last_steps.append(record)
        del self.last_steps[:-_MOST_SPEEDS]
        if not self.has_steps:
            return
        for name, column in self.columns.items():
            value = record["details"].get("staleness_mean") if name == "staleness" and "details" in record else None
            value = record.get(name) if name != "staleness" else value
            column.append(float(value) if isinstance(value, int | float) else float("nan"))
        ranks = record.get("ranks") or []
        if ranks and (not self.slowness.ranks or len(ranks) == len(self.slowness.ranks)):
            with contextlib.suppress(KeyError, TypeError):
                self.slowness.add(ranks)
        elif ranks:
            self.slowness = Slowness()  # another number of workers

    def _void(self, resume: Record) -> None:
        """Forget what happened after the step that training goes back to."""
        saved = resume["saved_step"]
        self.others = [one for one in self.others if one.get("step", 0) <= saved]
        self.latest = {kind: one for kind, one in self.latest.items() if one.get("step", 0) <= saved}
        self.last_steps = [one for one in self.last_steps if one["step"] <= saved]
        steps = self.columns["step"]
        count = len(steps)
        while count and steps[count - 1] > saved:
            count -= 1
        for column in self.columns.values():
            del column[count:]

    def _remark(self, text: str) -> None:
        if text not in self.remarks and len(self.remarks) < _MOST_REMARKS:
            self.remarks.append(text)

    # What others ask for

    def of_kind(self, *kinds: str) -> list[Record]:
        return [one for one in self.others if one["kind"] in kinds]

    def start(self) -> dict[str, Any]:
        """The latest start event, or nothing."""
        return next((one for one in reversed(self.others) if one["kind"] == "start"), {})

    def evaluations(self) -> list[Record]:
        """Evaluations by step. Those of a separate evaluator come in a file of their own, after all resumes."""
        resumes = self.of_kind("resume")
        valid = [
            one
            for one in self.of_kind("eval")
            if not any(back["t"] >= one["t"] and one["step"] > back["saved_step"] for back in resumes)
        ]
        return sorted(valid, key=lambda one: int(one["step"]))

    def seconds_at(self, t: float) -> float:
        """Seconds of training at a time, without pauses before a resume."""
        begun = self.first_t if self.first_t is not None else t
        return max(0.0, t - begun - sum(pause for ended, pause in self.pauses if ended <= t))

    @property
    def last_step(self) -> int:
        known = (*self.last_steps[-1:], *self.latest.values(), *self.others)
        found = [one["step"] for one in known if isinstance(one.get("step"), int)]
        return max(found, default=0)


def _kind(line: bytes) -> str:
    """The kind of an event, unread; empty where it is not where we write it."""
    found = _KIND.match(line)
    return found[1].decode() if found else ""
