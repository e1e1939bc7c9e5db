"""What keeps a process of this machine from running, as Linux tells: stopped, swapped out, waiting for a device."""

import contextlib
import time
from dataclasses import dataclass
from pathlib import Path

_LOOKS, _BETWEEN_S = 5, 0.05  # every process waits for a disk now and then: only one that always does is stuck
_MB = 1 << 20
_SWAPPED_MB = 64  # fewer are no reason to be silent


@dataclass(frozen=True)
class ProcessState:
    """One look at /proc/PID/status. `letter` is R, S, D, T, t, Z or X; empty where there is no such process."""

    letter: str = ""
    resident_mb: float = 0.0
    swapped_mb: float = 0.0

    @property
    def is_stopped(self) -> bool:
        return self.letter in ("T", "t")

    @property
    def is_swapped_out(self) -> bool:
        return self.swapped_mb > max(_SWAPPED_MB, self.resident_mb)


def read_state(pid: int) -> ProcessState:
    """The state of a process now. Needs /proc."""
    fields: dict[str, str] = {}
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text(encoding="utf-8", errors="replace").splitlines():
            name, _, value = line.partition(":")
            fields[name] = value.strip()
    return ProcessState(fields.get("State", "")[:1], _megabytes(fields, "VmRSS"), _megabytes(fields, "VmSwap"))


def _megabytes(fields: dict[str, str], name: str) -> float:
    words = fields.get(name, "").split()
    return int(words[0]) * 1024 / _MB if words and words[0].isdecimal() else 0.0


def hindrance(pid: int) -> str:
    """Why a live process does not run, as the end of a sentence that begins with its name; empty if it may run."""
    state = read_state(pid)
    if state.letter == "t":
        return "is stopped by a debugger"
    if state.is_stopped:
        return "is stopped (by SIGSTOP or Ctrl-Z; SIGCONT continues it)"
    if state.is_swapped_out:
        whole = state.resident_mb + state.swapped_mb
        return f"is swapped out: {state.swapped_mb:,.0f} of its {whole:,.0f} MB are on disk, as memory is short"
    for _ in range(_LOOKS):
        if state.letter != "D":
            return ""
        time.sleep(_BETWEEN_S)
        state = read_state(pid)
    return "waits for a disk, the network or a driver (state D)" if state.letter == "D" else ""
