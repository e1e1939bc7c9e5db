"""Logs of lines: what a line says of a batch or an epoch is collected, and placed on the axes when all is read."""

import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise

from phalanx.observe.curves import Log
from phalanx.observe.logs.names import as_accuracy, curve_names, is_accuracy, number

NUMBER = r"[-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|nan|inf)"
# Nothing here goes back over what it has matched: a line of blanks would take for ever.
_PAIR = re.compile(rf"(?<![\w@()./-])([A-Za-z_][\w@()./-]*+)(?:\s*+[:=]\s*+|\s++)({NUMBER})(?![\w.])")
_STAMP = re.compile(r"\[?(\d{4})[-/](\d\d)[-/](\d\d)[ T](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,6}))?")
_LONGEST = 4000  # characters of a line that a training script writes
_ABSURD = re.compile(r"(?<![\d.])\d{16}")  # a whole number that counts nothing
Key = tuple[int, int | None]  # an epoch from 0, and a batch of it from 0; None after the last


def pairs(text: str) -> dict[str, str]:
    """The names and numbers of `loss: 6.9, top1: 0.1` or `loss=6.9 top1=0.1` or `loss 6.9, top1 0.1`."""
    return dict(_PAIR.findall(text))


def numbers(text: str) -> list[float | None]:
    """The numbers of a printed list, also of numpy's: `[0.1, np.float32(0.2)]`."""
    return [number(found) for found in re.findall(rf"(?<![\w.])({NUMBER})(?![\w.])", re.sub(r"np\.\w+", "", text))]


def seconds(line: str) -> float | None:
    """The time at which a line was logged, if it begins with a date and a time."""
    found = _STAMP.search(line[:80])
    if not found:
        return None
    *date, fraction = found.groups()
    try:
        return datetime(*map(int, date)).timestamp() + float(f"0.{fraction or 0}")  # type: ignore[arg-type]
    except ValueError:
        return None


@dataclass
class Collected:
    """What the lines of a log say. Accuracies are given in 0..1 unless the system writes percent."""

    percent: bool = False
    per_epoch: int | None = None  # steps, if the log tells
    time: float | None = None  # of the current line, in seconds from any beginning
    values: dict[str, dict[Key, list[tuple[float, float | None]]]] = field(default_factory=dict)
    updates: list[tuple[int, float]] = field(default_factory=list)  # learning rates by step
    spent: dict[int, float] = field(default_factory=dict)  # seconds at the end of an epoch, where lines have no times
    last_epoch: int = 0  # of the lines so far

    def add(self, part: str, named: Iterable[tuple[str, object]], epoch: int, batch: int | None = None) -> bool:
        """Take numbers by name; names are translated. False if there is none. Infinite ones are left out."""
        self.last_epoch = epoch
        found = {f"{part}/{name}": number(text) for name, text in named if text is not None}
        for name, curve in curve_names(found).items():
            value = found[name]
            if value is None:
                continue
            if is_accuracy(curve):
                curve, value = as_accuracy(curve, value if self.percent else 100 * value)
            self.values.setdefault(curve, {}).setdefault((epoch, batch), []).append((value, self.time))
        return bool(found)

    def log(self, label: str) -> Log:
        """The curves. Several numbers for one place, such as those of several workers, become their mean."""
        log = Log(label)
        per_epoch = self.per_epoch or self._steps_per_epoch(log)
        times = [time for places in self.values.values() for found in places.values() for _, time in found]
        begin = min((time for time in times if time is not None), default=0.0)
        repeated = 0
        for curve, places in self.values.items():
            for (epoch, batch), found in sorted(places.items(), key=_order):
                repeated += len(found) > 1
                value = sum(value for value, _ in found) / len(found)
                time = self._time(epoch, batch, found[-1][1], begin)
                log.add(curve, value, **_placed(epoch, batch, per_epoch), time=time)
        for step, rate in self.updates:
            log.add("train/lr", rate, step=step, epoch=step / per_epoch if per_epoch else None)
        if repeated:
            log.notes.append(
                f"{repeated:,} numbers are logged more than once, by several workers or after a restart: drawn as means"
            )
        return log

    def _time(self, epoch: int, batch: int | None, logged: float | None, begin: float) -> float | None:
        if logged is not None:
            return logged - begin
        return self.spent.get(epoch) if batch is None else None

    def _steps_per_epoch(self, log: Log) -> int | None:
        """Found from complete epochs. Where not every batch is logged, it is an estimate, and a note says so."""
        places = {key for places in self.values.values() for key in places}
        last_epoch = max((epoch for epoch, _ in places), default=0)
        batches: dict[int, list[int]] = {}
        for epoch, batch in places:
            if batch is not None and (epoch < last_epoch or (epoch, None) in places):
                batches.setdefault(epoch, []).append(batch)
        if not batches:
            return None
        gaps = Counter(b - a for found in map(sorted, batches.values()) for a, b in pairwise(found))
        last = max(max(found) for found in batches.values())
        spacing = gaps.most_common(1)[0][0] if gaps else max(1, last)
        if spacing > 1:
            log.notes.append(
                f"an epoch is taken as {last + spacing:,} steps: the last batch that is logged is {last:,}, "
                f"and one in {spacing:,} is"
            )
        return last + spacing


def _order(place: tuple[Key, object]) -> tuple[int, float]:
    (epoch, batch), _ = place
    return epoch, float("inf") if batch is None else batch


def _placed(epoch: int, batch: int | None, per_epoch: int | None) -> dict[str, float | None]:
    """How far training was: epochs and steps that were done."""
    if batch is None:
        return {"epoch": epoch + 1, "step": (epoch + 1) * per_epoch if per_epoch else None}
    if per_epoch is None:
        return {"epoch": None, "step": batch + 1 if epoch == 0 else None}
    return {"epoch": epoch + (batch + 1) / per_epoch, "step": epoch * per_epoch + batch + 1}


@dataclass(frozen=True)
class TextFormat:
    """One system's lines. `mark` is in all of them, also in damaged ones; `take` returns whether it could read one."""

    name: str
    mark: re.Pattern[str]
    take: Callable[[str, Collected], bool]
    percent: bool = False  # whether accuracies are


def parse(lines: Iterable[str], form: TextFormat) -> tuple[Collected, int, list[int]]:
    """What the lines say, how many could be read, and the numbers of those that could not."""
    collected, read, damaged = Collected(percent=form.percent), 0, []
    for place, line in enumerate(lines, start=1):
        if form.mark.search(line[:_LONGEST]):
            collected.time = seconds(line)
            if len(line) <= _LONGEST and not _ABSURD.search(line) and form.take(line, collected):
                read += 1
            else:
                damaged.append(place)
    return collected, read, damaged
