"""What the latest steps of a run say: the times of each worker, and which one is slow now.

One step says little, for times differ from step to step; the whole run says nothing of a worker that became slow.
"""

import contextlib
from typing import Any

from phalanx.observe.history import History
from phalanx.observe.job_facts import listed
from phalanx.observe.slowness import Slowest, Slowness
from phalanx.runs.events import TIMES, Record

_CLEAR = 0.1  # of the others' time: by less, workers differ from step to step
_MEANT = (*(f"{name}_s" for name in TIMES), "samples_per_s")


def latest_step(history: History) -> Record | None:
    """The last step event, with the means of the latest ones as its times and as those of each worker."""
    if not history.last_steps:
        return None
    last = history.last_steps[-1]
    workers = [_mean(rows) for rows in zip(*_ranks(history), strict=True)]
    return {**last, **_mean(history.last_steps), "ranks": workers}


def slow_worker(history: History, job: dict[str, Any] | None) -> dict[str, Any] | None:
    """The slowest worker, by how much of the others' time and at what. `clear`: by so much that it matters."""
    found = _of_latest_steps(history) or _of_roles(job)
    if found is None:
        return None
    return {"rank": found.rank, "share": found.share, "part": found.part, "clear": found.share >= _CLEAR}


def _ranks(history: History) -> list[list[dict[str, float]]]:
    """The workers' times in each of the latest steps, since the job has so many workers."""
    rows = [one.get("ranks") or [] for one in history.last_steps]
    return [row for row in rows if len(row) == len(rows[-1])]


def _mean(rows: Any) -> dict[str, float]:
    values = {name: [row[name] for row in rows if isinstance(row.get(name), int | float)] for name in _MEANT}
    return {name: sum(found) / len(found) for name, found in values.items() if found}


def _of_latest_steps(history: History) -> Slowest | None:
    found = Slowness()
    for row in _ranks(history):
        with contextlib.suppress(KeyError, TypeError):
            found.add(row)
    return found.slowest()


def _of_roles(job: dict[str, Any] | None) -> Slowest | None:
    """Workers that run at their own pace report to the supervisor alone."""
    found = Slowness()
    times = [role.get("times") for role in listed(job, "roles") if str(role.get("name", "")).startswith("trainer-")]
    with contextlib.suppress(KeyError, TypeError, ValueError):
        found.add([{f"{name}_s": float(one[name]) for name in TIMES} for one in times if one is not None])
    return found.slowest() if len(found.ranks) == len(times) else None
