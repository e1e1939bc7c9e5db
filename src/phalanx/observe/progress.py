"""Progress of long work: a bar on a terminal; anywhere else a line every ten seconds."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from phalanx.observe.tables import print_line

LINE_EVERY_S = 10.0
SAME_LINE_EVERY_S = 60.0
MEGABYTE = 1_000_000


@contextmanager
def progress(console: Console, what: str, total: int) -> Iterator[Callable[[int], None]]:
    """Yields a function; call it with the number of items done since the last call."""
    if console.is_terminal:
        columns = (TextColumn("{task.description}"), BarColumn(24), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns, console=console, transient=True) as bar:
            task = bar.add_task(what, total=total)
            yield lambda count: bar.advance(task, count)
        return
    yield _Lines(console, what, total).advance


class _Lines:
    def __init__(self, console: Console, what: str, total: int) -> None:
        self._console, self._what, self._total = console, what, total
        self._done, self._printed, self._printed_at = 0, 0, time.monotonic()

    def advance(self, count: int) -> None:
        self._done += count
        wait_s = LINE_EVERY_S if self._done != self._printed else SAME_LINE_EVERY_S
        if time.monotonic() - self._printed_at >= wait_s:
            self._printed, self._printed_at = self._done, time.monotonic()
            print_line(self._console, f"{self._what} {self._done:,} of {self._total:,}")
            self._console.file.flush()


@contextmanager
def megabytes(console: Console, what: str, total_bytes: int) -> Iterator[Callable[[int], None]]:
    """The same for files: call the function with the number of bytes done since the last call."""
    done = 0
    with progress(console, f"{what}, MB:", total_bytes // MEGABYTE) as advance:

        def add(count: int) -> None:
            nonlocal done
            before, done = done, done + count
            if done // MEGABYTE > before // MEGABYTE:
                advance(done // MEGABYTE - before // MEGABYTE)

        yield add
