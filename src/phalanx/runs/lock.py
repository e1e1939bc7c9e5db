"""A run has one writer: the first trainer holds a lock on its folder for as long as it lives."""

import errno
import fcntl
import os
import platform
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from phalanx.errors import UserError

LOCK = ".lock"
_WAIT_S = 2.0  # a process that was killed a moment ago may still hold it
_NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS)  # file systems without locks


@contextmanager
def hold_run(run: Path) -> Iterator[None]:
    """Hold the lock of a run's folder. The kernel releases it if this process dies."""
    try:
        descriptor = os.open(run / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError:  # not writable: whoever writes there reports it
        yield
        return
    try:
        _take(descriptor, run)
        os.truncate(descriptor, 0)
        when = time.strftime("%Y-%m-%d %H:%M:%S")
        os.pwrite(descriptor, f"process {os.getpid()} on {platform.node()}, since {when}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)


def _take(descriptor: int, run: Path) -> None:
    deadline = time.monotonic() + _WAIT_S
    while True:
        try:
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in _NO_LOCKS:
                return None
            if time.monotonic() > deadline:
                raise _taken(descriptor, run) from error
        time.sleep(0.1)


def _taken(descriptor: int, run: Path) -> UserError:
    holder = os.pread(descriptor, 200, 0).decode(errors="replace").strip() or "another process"
    return UserError(
        f"{run} is being trained already",
        why=f"a run has one writer, and that is {holder}",
        remedy="wait until it ends or end it (`phalanx stop` for a launched job); or start another run with --out",
    )
