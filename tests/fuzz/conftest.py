"""Fuzz tests: the marker `fuzz`, and `--fuzz-seconds S`, which gives them random examples until S seconds are over.

A failure prints the example, and a line `@reproduce_failure(…)` that repeats it when it is put above the test.
"""

import functools
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.fuzz.budget import BUDGET


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--fuzz-seconds", type=float, default=None, help="how long all fuzz tests together may run")


def pytest_configure(config: pytest.Config) -> None:
    # Not known where the folder was not named on the command line: conftest.py is read too late for options then.
    BUDGET.seconds = config.getoption("--fuzz-seconds", default=None)


def pytest_collection_finish(session: pytest.Session) -> None:
    if BUDGET.seconds is not None:
        BUDGET.begin(BUDGET.seconds, sum(_repeats(item) for item in session.items))


def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Repeat a test with other random examples until its share of the time is over."""
    if not _repeats(pyfuncitem):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    BUDGET.examples, until = 0, BUDGET.share()
    _count_examples(pyfuncitem.obj)
    while True:
        pyfuncitem.obj(**arguments)
        if time.monotonic() > until:
            return True


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "call" and BUDGET.seconds is not None and "fuzz" in report.keywords:
        report.sections.append(("fuzz", f"{BUDGET.examples:,} examples"))
        print(f" {BUDGET.examples:,} examples in {report.duration:.0f} s", flush=True)


def _repeats(item: pytest.Item) -> bool:
    return BUDGET.seconds is not None and hasattr(getattr(item, "obj", None), "hypothesis")


def _count_examples(test: Any) -> None:
    inner: Callable[..., None] = test.hypothesis.inner_test

    @functools.wraps(inner)
    def counted(*args: Any, **kwargs: Any) -> None:
        BUDGET.examples += 1
        inner(*args, **kwargs)

    test.hypothesis.inner_test = counted
