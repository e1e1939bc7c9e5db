"""End a role's processes reliably: its process group, and those that left the group, found by an environment mark."""

import asyncio
import contextlib
import ctypes
import os
import signal
import sys
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

MARK = "PHALANX_AGENT"  # AGENT/ROLE/, in the environment of a role and of the processes that it starts
_PR_SET_CHILD_SUBREAPER, _PR_GET_CHILD_SUBREAPER = 36, 37
T = TypeVar("T")


@contextlib.contextmanager
def adopting_orphans() -> Iterator[None]:
    """Be the parent of processes that roles leave behind, instead of init. Linux only."""
    if sys.platform != "linux":
        yield
        return
    libc, before = ctypes.CDLL(None), ctypes.c_int()
    libc.prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(before), 0, 0, 0)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        yield
    finally:  # afterwards this process may do other work, and would not wait for orphans
        libc.prctl(_PR_SET_CHILD_SUBREAPER, before.value, 0, 0, 0)


def run_loop(main: Coroutine[Any, Any, T]) -> T:
    """asyncio.run that waits for children by pidfd. Python 3.11 uses a thread for each."""
    if sys.version_info < (3, 12) and hasattr(os, "pidfd_open"):
        asyncio.set_child_watcher(asyncio.PidfdChildWatcher())
    return asyncio.run(main)


async def readable_pipe() -> tuple[asyncio.StreamReader, int]:
    """A pipe: a reader, and the descriptor to write to.

    asyncio's own subprocess pipes do not work here: with them, waiting for a process also waits for every process that
    inherited its output, and an agent must notice a grandchild that was left behind.
    """
    reading, writing = os.pipe()
    reader = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(reader)
    await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, os.fdopen(reading, "rb", 0))
    return reader, writing


def signal_group(leader: int, number: int) -> None:
    """Signal a role and its children. Each role leads its own process group."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, number)


def signal_marked(mark: str, number: int = signal.SIGKILL) -> int:
    """Signal every other process whose mark starts with `mark`. Returns how many there were."""
    found = marked(mark)
    for pid in found:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)
    return len(found)


def marked(mark: str) -> list[int]:
    """Live processes whose mark starts with `mark`. Needs /proc; elsewhere process groups must do."""
    wanted = f"{MARK}={mark}".encode()
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended, or is another user's
            environ = (entry / "environ").read_bytes()  # a zombie's is empty
            if environ.startswith(wanted) or b"\0" + wanted in environ:
                found.append(int(entry.name))
    return [pid for pid in found if pid != os.getpid()]


def start_time(pid: int) -> int | None:
    """Start time of a live process, in clock ticks. Together with the pid it identifies a process uniquely."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        return int(fields[19]) if fields[0] not in "ZX" else None
    return None
