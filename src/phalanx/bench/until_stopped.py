"""Ctrl-C and SIGTERM in the middle of a benchmark: what has been measured is told, and then it ends."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass
class Stopped:
    """Whether a benchmark was stopped."""

    happened: bool = False

    @property
    def notes(self) -> list[str]:
        return ["stopped by you before all was measured"] if self.happened else []

    def end(self) -> None:
        """After the report: go on with what stopped it."""
        if self.happened:
            raise KeyboardInterrupt


@contextmanager
def until_stopped(is_enough: Callable[[], object]) -> Iterator[Stopped]:
    """Around the measurements. A stop ends them quietly if there `is_enough` to report."""
    stopped = Stopped()
    try:
        yield stopped
    except KeyboardInterrupt:
        if not is_enough():
            raise
        stopped.happened = True
