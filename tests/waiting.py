"""The one wait helper of the tests: polls until a condition holds."""

import time
from collections.abc import Callable


def until(condition: Callable[[], object], timeout_s: float = 180.0, *, why: Callable[[], str] = str) -> None:
    """Wait until a condition holds. Fails after the timeout with what `why` returns."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"the condition did not hold within {timeout_s:g} s {why()}"
        time.sleep(0.02)
