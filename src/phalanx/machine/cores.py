"""The processor of this machine: its name, and how many cores this process may use."""

import math
import os
import platform
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_GROUPS, _OWN_GROUPS = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")


def cores() -> int:
    """Cores that this process may use: its CPU affinity, limited by the CPU quota of its container."""
    return math.ceil(min([_cores_to_run_on(), *_limits()]))


def is_limited() -> bool:
    """Whether a CPU quota would throttle this process if it used all of its cores."""
    return any(limit < _cores_to_run_on() for limit in _limits())


def _cores_to_run_on() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _limits() -> Iterator[float]:
    """CPU quotas of this process's control groups, in cores: `docker --cpus`, Kubernetes limits."""
    with suppress(OSError, ValueError):
        for line in _OWN_GROUPS.read_text(encoding="utf-8").splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers and "cpu" not in controllers.split(","):
                continue
            # In a container the path may be the host's; the process's own group is then the root.
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
