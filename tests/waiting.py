"""The one wait helper of the tests: polls until a condition holds."""

import time
from collections.abc import Callable


def until(condition: Callable[[], object], timeout_s: float = 180.0, *, why: Callable[[], str] = str) -> None:
    """Wait until a condition holds. Fails after the timeout with what `why` returns.

    A look takes at most a fifth of the time: to read all processes, or all of a run's events, is work for a core that
    the job which is waited for needs itself.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        began = time.monotonic()
        if condition():
            return
        now = time.monotonic()
        assert now < deadline, f"the condition did not hold within {timeout_s:g} s {why()}"
        time.sleep(max(0.02, 4 * (now - began)))
