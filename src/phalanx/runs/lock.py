"""A run has one writer: the first trainer holds a lock on its folder for as long as it lives."""

import contextlib
import errno
import fcntl
import os
import platform
import time
from collections.abc import Iterator
from pathlib import Path

from phalanx.errors import UserError

LOCK = ".lock"
_WAIT_S = 2.0  # a process that was killed a moment ago may still hold it
_NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS)  # file systems without locks


@contextlib.contextmanager
def hold_run(run: Path) -> Iterator[None]:
    """Hold the lock of a run's folder. The kernel releases it if this process dies; the file is removed at the end."""
    path = run / LOCK
    try:
        descriptor = _taken(path)
    except OSError:  # not writable: whoever writes there reports it
        yield
        return
    try:
        when = time.strftime("%Y-%m-%d %H:%M:%S")
        os.truncate(descriptor, 0)
        os.pwrite(descriptor, f"process {os.getpid()} on {platform.node()}, since {when}\n".encode(), 0)
        yield
    finally:
        with contextlib.suppress(OSError):
            path.unlink()  # before it is released: nobody else can hold it yet
        os.close(descriptor)


def is_held(run: Path) -> bool:
    """Whether a process trains the run, as far as this host can tell: its file is there, and locked."""
    try:
        descriptor = os.open(run / LOCK, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)  # for a moment: a writer tries for longer
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


def _taken(path: Path) -> int:
    """A descriptor that holds the lock."""
    deadline = time.monotonic() + _WAIT_S
    while True:
        descriptor = _opened(path)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_at(descriptor, path):
                return descriptor
        except OSError as error:
            if error.errno in _NO_LOCKS:
                return descriptor
            if time.monotonic() > deadline:
                refusal = _in_use(descriptor, path.parent)
                os.close(descriptor)
                raise refusal from error
        os.close(descriptor)  # another process holds it, or has just removed the file
        time.sleep(0.1)


def _opened(path: Path) -> int:
    """The lock's file, made if it is not there. It will be overwritten, so what another path leads to is refused."""
    if path.is_symlink() or (path.exists() and not path.is_file()):
        raise UserError(
            f"{path} is not a file of a run",
            why="it is a link, or a special file" + (f": {str(path.readlink())!r}" if path.is_symlink() else ""),
            remedy="look where the folder comes from, and remove it",
        )
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)


def _is_at(descriptor: int, path: Path) -> bool:
    """Whether the file that was opened is still the one at the path."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def _in_use(descriptor: int, run: Path) -> UserError:
    holder = os.pread(descriptor, 200, 0).decode(errors="replace").strip() or "another process"
    return UserError(
        f"{run} is being trained already",
        why=f"a run has one writer, and that is {holder}",
        remedy="wait until it ends or end it (`phalanx stop` for a launched job); or start another run with --out",
    )
