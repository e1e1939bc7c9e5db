"""The processor of this machine, for all that divides work over its cores."""

import math
import os
import platform
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_GROUPS, _OWN_GROUPS = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")


def cores() -> int:
    """Cores that this process may use: those that it may run on, but no more than its container is given time for."""
    return math.ceil(min([_cores_to_run_on(), *_limits()]))


def is_limited() -> bool:
    """Whether this process, running on all of its cores, would use up its time and be held up."""
    return any(limit < _cores_to_run_on() for limit in _limits())


def _cores_to_run_on() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _limits() -> Iterator[float]:
    """How many cores' time the control groups that this process is in have: `docker --cpus`, limits of Kubernetes."""
    with suppress(OSError, ValueError):
        for line in _OWN_GROUPS.read_text(encoding="utf-8").splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers and "cpu" not in controllers.split(","):
                continue
            # In a container the path may be the host's, and the own group be found where the others begin.
            begin, below = _GROUPS / ("cpu" if controllers else ""), Path(path).parts[1:]
            for depth in range(len(below) + 1):
                with suppress(OSError, ValueError, ZeroDivisionError):  # no such group, or it has no limit
                    yield _limit_of(begin.joinpath(*below[:depth]), newer=not controllers)


def _limit_of(group: Path, *, newer: bool) -> float:
    names = ("cpu.max",) if newer else ("cpu.cfs_quota_us", "cpu.cfs_period_us")
    quota, period = " ".join((group / name).read_text(encoding="utf-8") for name in names).split()
    if int(quota) <= 0:
        raise ValueError("no limit")
    return int(quota) / int(period)


def cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())
