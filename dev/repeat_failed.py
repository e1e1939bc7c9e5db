"""Tests that failed are repeated once, alone: python -m pytest -p dev.repeat_failed.

Beside others on busy cores a test may fail that is right. If all of at most ten pass by themselves, the run passes and
says which ones they are. Such a test is a fault to mend, but not one of the change that is being checked.
"""

import subprocess
import sys
from collections.abc import Generator

import pytest

MOST = 10


class Failures:
    """What failed in this session."""

    def __init__(self) -> None:
        self.names: dict[str, None] = {}  # in their order, each once: a test may fail, and its fixture's end as well
        self.complete = True  # every test was collected, and ran

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.names[report.nodeid] = None

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self.complete = self.complete and not report.failed

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if session.shouldfail or session.shouldstop:  # -x
            self.complete = False


@pytest.hookimpl(wrapper=True)
def pytest_cmdline_main(config: pytest.Config) -> Generator[None, object, object]:
    """In the process that was started only: xdist's workers do not come here."""
    failures = Failures()
    config.pluginmanager.register(failures)
    code = yield
    if code != pytest.ExitCode.TESTS_FAILED or not failures.complete or not 0 < len(failures.names) <= MOST:
        return code
    print("\nonce more, alone: what failed", flush=True)
    again = subprocess.run([sys.executable, "-m", "pytest", *failures.names], cwd=config.rootpath)
    if again.returncode != pytest.ExitCode.OK:
        return code
    for name in failures.names:
        print(f"failed once, passed alone: {name}")
    return pytest.ExitCode.OK
