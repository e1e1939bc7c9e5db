"""Busy processes beside a benchmark: what other users of a shared machine do to it."""

import subprocess
import sys
from types import TracebackType

_PROGRAM = """
import os
parent = os.getppid()
while os.getppid() == parent:
    sum(range(200000))
"""


class BusyProcesses:
    """So many processes that always compute. The context manager ends them; so does the end of this process.

    Each has a session of its own, as programs of several users and terminals have: Linux shares cores by session first.
    """

    def __init__(self, number: int) -> None:
        self._processes: list[subprocess.Popen[bytes]] = []
        self._number = number

    def __enter__(self) -> "BusyProcesses":
        try:
            for _ in range(self._number):
                self._processes.append(subprocess.Popen([sys.executable, "-c", _PROGRAM], start_new_session=True))
        except BaseException:  # such as a limit on processes: the context that would end the others never begins
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def _end(self) -> None:
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.wait()
