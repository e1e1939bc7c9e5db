"""What a view of a job shows, as plain data: `view_lines` draws it, whoever knows a job fills it in."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from phalanx.observe.slowness import Slowest
from phalanx.runs.events import TIMES


@dataclass(frozen=True)
class WorkerView:
    """One worker: its speed, and where the time of its steps goes."""

    rank: int
    host: str = ""
    samples_per_s: float | None = None
    times: Mapping[str, float] | None = None  # seconds a step by kind; `waiting` is not part of `exchange`
    fate: str = ""  # how it ended, or why it is not at work


@dataclass(frozen=True)
class ScoreView:
    """Accuracies as text, and their curve."""

    text: str
    curve: Sequence[float] = ()
    aside: str = ""  # loss, or the best so far


@dataclass(frozen=True)
class WorkView:
    """What happens between steps."""

    what: str  # one word
    done: int
    total: int
    left_s: float | None = None


@dataclass(frozen=True)
class JobView:
    """A job at one moment. What is not known is None or empty, and is not shown."""

    step: int = 0
    total_steps: int = 0
    epoch: int = 0
    batch: int = 0
    batches: int = 0
    epoch_left_s: float | None = None
    left_s: float | None = None
    taken_s: float | None = None
    work: WorkView | None = None
    training: ScoreView | None = None
    validation: ScoreView | None = None
    samples_per_s: float | None = None
    times: Mapping[str, float] | None = None
    workers: Sequence[WorkerView] = ()
    slowest: Slowest | None = None
    title: str = ""  # of a job that runs elsewhere
    state: str = ""
    others: str = ""  # roles that are no workers
    problems: Sequence[str] = ()  # why some of this may be wrong


def split_times(times: Any, waiting: float | None = None) -> dict[str, float] | None:
    """Seconds a step by kind, with what an exchange only waited for slower workers as a part of its own.

    None of what holds no times: job.json may be damaged.
    """
    if not isinstance(times, Mapping):
        return None
    known = {name: float(times[name]) for name in TIMES if isinstance(times.get(name), int | float)}
    if waiting is not None and "exchange" in known:
        known["exchange"] -= waiting
        known["waiting"] = waiting
    return known or None


def mean_times(workers: Sequence[WorkerView]) -> dict[str, float] | None:
    """The mean of all workers whose times are known."""
    known = [worker.times for worker in workers if worker.times]
    names = {name for times in known for name in times}
    return {name: sum(times.get(name, 0.0) for times in known) / len(known) for name in names} if known else None


def workers_in(roles: Sequence[Mapping[str, Any]]) -> list[WorkerView]:
    """The trainers among the roles of `job_facts.roles_of`."""
    found = []
    for role in roles:
        kind, _, number = str(role.get("name", "")).rpartition("-")
        if kind == "trainer" and number.isdecimal():
            speed, fate = role.get("samples_per_s"), str(role.get("fate") or "")
            found.append(
                WorkerView(
                    rank=int(number),
                    host=str(role.get("host") or ""),
                    samples_per_s=float(speed) if isinstance(speed, int | float) else None,
                    times=split_times(role.get("times"), role.get("waiting")),
                    fate="" if fate == "running" else fate,
                )
            )
    return found


def others_in(roles: Sequence[Mapping[str, Any]]) -> str:
    """The roles that are no trainers, in words: `server-0 running, data-0 killed (SIGKILL)`."""
    others = [role for role in roles if not str(role.get("name", "")).startswith("trainer-")]
    return ", ".join(f"{role.get('name')} {role.get('fate')}" for role in others)


def total_speed(workers: Sequence[WorkerView]) -> float | None:
    """Samples a second of all workers together; None while one is not known."""
    speeds = [worker.samples_per_s for worker in workers]
    known = [speed for speed in speeds if speed is not None]
    return sum(known) if known and len(known) == len(speeds) else None
