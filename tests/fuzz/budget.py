"""How long fuzz tests run: a few fixed examples in the suite, or until the time of `--fuzz-seconds` is over."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

EXAMPLES_AT_ONCE = 100  # with --fuzz-seconds: between two looks at the clock


@dataclass
class Budget:
    """The seconds that all fuzz tests share; None in the normal suite."""

    seconds: float | None = None
    tests: int = 0  # that still have to run
    until: float = 0.0
    examples: int = 0  # so far, of the current test

    def begin(self, seconds: float, tests: int) -> None:
        self.tests, self.until = tests, time.monotonic() + seconds

    def share(self) -> float:
        """When the next test has to end. What others left unused is shared by those that follow."""
        now = time.monotonic()
        share = max(0.0, self.until - now) / max(1, self.tests)
        self.tests -= 1
        return now + share


BUDGET = Budget()
Test = Callable[..., None]


def fuzz(examples: int = 25, **strategies: Any) -> Callable[[Test], Test]:
    """A fuzz test. Its examples are the same each time in the normal suite, and random with `--fuzz-seconds`."""

    def decorate(test: Test) -> Test:
        endless = BUDGET.seconds is not None
        how = settings(
            max_examples=EXAMPLES_AT_ONCE if endless else examples,
            derandomize=not endless,
            database=None,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            print_blob=True,
        )
        marked: Test = pytest.mark.fuzz(how(given(**strategies)(test)))
        return marked

    return decorate
