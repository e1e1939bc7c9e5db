"""How far something long is: a bar on a terminal; anywhere else a line every ten seconds, if there is news."""

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
    """Gives a function that is told how many more are done."""
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
        self._done, self._told, self._said = 0, 0, time.monotonic()

    def advance(self, count: int) -> None:
        self._done += count
        quiet_s = LINE_EVERY_S if self._done != self._told else SAME_LINE_EVERY_S
        if time.monotonic() - self._said >= quiet_s:
            self._told, self._said = self._done, time.monotonic()
            print_line(self._console, f"{self._what} {self._done:,} of {self._total:,}")
            self._console.file.flush()


@contextmanager
def megabytes(console: Console, what: str, total_bytes: int) -> Iterator[Callable[[int], None]]:
    """The same for a pass over files: gives a function that is told how many more bytes are done."""
    done = 0
    with progress(console, f"{what}, MB:", total_bytes // MEGABYTE) as advance:

        def tell(count: int) -> None:
            nonlocal done
            before, done = done, done + count
            if done // MEGABYTE > before // MEGABYTE:
                advance(done // MEGABYTE - before // MEGABYTE)

        yield tell
