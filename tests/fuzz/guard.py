"""What an attack may do at most: raise a UserError, and take bounded time and memory."""

import contextlib
import faulthandler
import resource
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

from phalanx.errors import UserError

MOST_S = 30  # for a few kB: only a real hang takes so long
MOST_ADDRESSES = 2 << 30  # bytes of memory that may be asked for; a length field of 2^40 asks for more
MOST_BYTES = 256 << 20  # of memory that may be used
MOST_SAID = 20_000  # characters of an error


class Hang(BaseException):
    """No Exception: readers must not be able to take it for damage."""


@contextlib.contextmanager
def guarded(*refusals: type[Exception], most_bytes: int = MOST_BYTES) -> Iterator[None]:
    """What runs inside may raise a UserError that helps, or one of `refusals`; nothing else, and no hang."""
    with _limited_time(), _limited_memory(most_bytes):
        try:
            yield
        except UserError as error:
            _check_helps(error)
        except refusals:
            pass


def _check_helps(error: UserError) -> None:
    assert error.what, error
    assert error.why, error
    assert error.remedy, error
    assert len(str(error)) < MOST_SAID, f"{len(str(error)):,} characters: {str(error)[:1000]}"


@contextlib.contextmanager
def _limited_time() -> Iterator[None]:
    def ring(number: int, frame: FrameType | None) -> None:
        raise Hang(f"no end after {MOST_S} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, MOST_S)
    # Where C code holds the interpreter, only the end of the process is left.
    faulthandler.dump_traceback_later(4 * MOST_S, exit=True, file=sys.__stderr__ or sys.stderr)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextlib.contextmanager
def _limited_memory(most_bytes: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins again
    now = _status("VmRSS")
    resource.setrlimit(resource.RLIMIT_AS, (_status("VmSize") + MOST_ADDRESSES, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
    taken = _status("VmHWM") - now
    assert taken < most_bytes, f"{taken >> 20} MB of memory"


def _status(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:"))
