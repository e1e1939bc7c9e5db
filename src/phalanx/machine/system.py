"""What a host and this process use of cores, memory and GPUs, read from /proc: cheap enough for every log line."""

import contextlib
import os
import platform
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_PROC = Path("/proc")


@dataclass(frozen=True)
class SystemFigures:
    """Shares are of 1, memory is in bytes. None where this system does not tell."""

    host: str
    cpu: float | None  # share of all the host's cores that was busy since the last reading
    process_cpu: float  # cores that this process kept busy since the last reading
    memory: int | None  # in use on the host
    memory_total: int | None
    process_memory: int | None  # resident
    gpus: list[dict[str, float]]


@dataclass
class SystemMeter:
    """Reads figures; shares are since the reading before."""

    _busy: tuple[int, int] | None = field(default_factory=lambda: _host_ticks())
    _used: float = field(default_factory=time.process_time)
    _at: float = field(default_factory=time.monotonic)

    def read_host(self) -> dict[str, float | None]:
        """The host's share of it alone, as plain data."""
        found = self.read()
        return {"cpu": found.cpu, "memory": found.memory, "memory_total": found.memory_total}

    def read(self) -> SystemFigures:
        busy, used, now = _host_ticks(), time.process_time(), time.monotonic()
        share = None
        if busy is not None and self._busy is not None and busy[1] > self._busy[1]:
            share = min(1.0, max(0.0, (busy[0] - self._busy[0]) / (busy[1] - self._busy[1])))
        cores = (used - self._used) / max(1e-9, now - self._at)
        self._busy, self._used, self._at = busy, used, now
        free, total = _meminfo()
        return SystemFigures(
            host=platform.node(),
            cpu=share,
            process_cpu=cores,
            memory=total - free if total is not None and free is not None else None,
            memory_total=total,
            process_memory=_resident(),
            gpus=_gpus(),
        )


def _host_ticks() -> tuple[int, int] | None:
    """(busy, all) ticks of the host's cores since it started."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        with (_PROC / "stat").open("rb") as lines:
            ticks = [int(word) for word in lines.readline().split()[1:9]]
        idle = ticks[3] + ticks[4]  # idle, and waiting for a disk
        return sum(ticks) - idle, sum(ticks)
    return None


def _meminfo() -> tuple[int | None, int | None]:
    """(available, total) bytes of the host."""
    found: dict[bytes, int] = {}
    with contextlib.suppress(OSError, ValueError, IndexError), (_PROC / "meminfo").open("rb") as lines:
        for line in lines:
            name, _, rest = line.partition(b":")
            if name in (b"MemTotal", b"MemAvailable"):
                found[name] = int(rest.split()[0]) * 1024
            if len(found) == 2:
                break
    return found.get(b"MemAvailable"), found.get(b"MemTotal")


def _resident() -> int | None:
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int((_PROC / "self/statm").read_bytes().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return None


def _gpus() -> list[dict[str, float]]:
    """Memory of the GPU that this process uses; `peak` is the most that its tensors took.

    A process without torch, such as an agent, uses none.
    """
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available() or not torch.cuda.is_initialized():
        return []
    # Only its own: to ask about another one would take some hundred MB of that GPU.
    number = torch.cuda.current_device()
    figures: dict[str, Any] = {"gpu": number}
    with contextlib.suppress(RuntimeError):
        free, total = torch.cuda.mem_get_info(number)
        figures |= {"memory": total - free, "memory_total": total, "peak": torch.cuda.max_memory_reserved(number)}
    with contextlib.suppress(Exception):  # needs NVIDIA's management library, which is a package of its own
        figures["use"] = torch.cuda.utilization(number) / 100
    return [figures]
