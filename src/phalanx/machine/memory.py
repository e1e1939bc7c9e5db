"""Memory that a process may use, and whether the kernel has ended processes because there was none left."""

import contextlib
import resource
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

_CGROUPS = Path("/sys/fs/cgroup")
_MB = 1 << 20
_UNKNOWN_BYTES = 8.0 * (1 << 30)  # taken as free where the system does not say
_NO_LIMIT_MB = 1 << 40  # what cgroup v1 has where nothing is limited is about this


@dataclass(frozen=True)
class MemoryGroup:
    """A memory cgroup, of version 1 or 2: its folder, that of the whole hierarchy, and the names of its files."""

    folder: Path
    root: Path
    counter: str
    limit: str

    def oom_kills(self) -> int | None:
        """How many of its processes the kernel has ended."""
        return _field(self.folder / self.counter, "oom_kill")

    def limit_mb(self) -> float | None:
        """The lowest limit of it and of those around it."""
        found = []
        for folder in (self.folder, *self.folder.parents):
            with contextlib.suppress(OSError, ValueError):
                found.append(int((folder / self.limit).read_text(encoding="ascii")) / _MB)
            if folder == self.root:
                break
        return min((limit for limit in found if limit < _NO_LIMIT_MB), default=None)


def memory_group(pid: int | str = "self") -> MemoryGroup | None:
    """The memory cgroup of a process. None where the system has none, or does not show it."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/cgroup").read_text(encoding="utf-8").splitlines():
            _, controllers, path = line.split(":", 2)
            v1 = "memory" in controllers.split(",")
            root = _CGROUPS / "memory" if v1 else _CGROUPS
            names = ("memory.oom_control", "memory.limit_in_bytes") if v1 else ("memory.events", "memory.max")
            if not v1 and controllers:
                continue
            for folder in (root / path.lstrip("/"), root):  # a container sees its own cgroup as the root
                if (folder / names[0]).exists():
                    return MemoryGroup(folder, root, *names)
    return None


@dataclass(frozen=True)
class OomCounts:
    """How often the kernel has ended processes for want of memory: on this machine, and in a process's cgroup."""

    machine: int | None
    group: int | None

    def kills_since(self, before: "OomCounts") -> str:
        """The counters that have grown, for messages; empty where the kernel has ended nothing since."""
        for name, then, now in (("in its cgroup, ", before.group, self.group), ("", before.machine, self.machine)):
            if then is not None and now is not None and now > then:
                return f"{name}oom_kill {then} → {now}"
        return ""


def oom_counts(group: MemoryGroup | None) -> OomCounts:
    return OomCounts(_field(Path("/proc/vmstat"), "oom_kill"), group.oom_kills() if group is not None else None)


def free_bytes(device: "torch.device") -> float:
    """Memory that this machine has left for its processes: of the GPU, or of the host and of this process's cgroup."""
    if device.type == "cuda":
        import torch

        return float(torch.cuda.mem_get_info(device)[0])
    left, group = _field(Path("/proc/meminfo"), "MemAvailable:"), memory_group()
    limits = [1024.0 * left] if left is not None else []
    limit = group.limit_mb() if group is not None else None
    if limit is not None:
        limits.append(limit * _MB - 1024.0 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    return max(0.0, min(limits)) if limits else _UNKNOWN_BYTES


def describe_limits() -> str:
    """What limits the memory of this process, and what the machine has left, for messages."""
    parts = []
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    if soft != resource.RLIM_INFINITY:
        parts.append(f"this process may have {soft / _MB:,.0f} MB (ulimit -v)")
    group = memory_group()
    limit = group.limit_mb() if group is not None else None
    if limit is not None:
        parts.append(f"its cgroup {limit:,.0f} MB")
    left, total = (_field(Path("/proc/meminfo"), name) for name in ("MemAvailable:", "MemTotal:"))
    if left is not None and total is not None:
        parts.append(f"the machine has {left / 1024:,.0f} of {total / 1024:,.0f} MB left")
    return ", ".join(parts)


def _field(path: Path, name: str) -> int | None:
    """The number behind a name in a file with one of each in a line."""
    with contextlib.suppress(OSError, ValueError):
        for line in path.read_text(encoding="ascii").splitlines():
            words = line.split()
            if len(words) >= 2 and words[0] == name:
                return int(words[1])
    return None
