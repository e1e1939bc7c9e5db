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
def progress(console: Console, what: str, total: int, *, after_s: float = 0.0) -> Iterator[Callable[[int], None]]:
    """Yields a function; call it with the number of items done since the last call.

    `after_s`: a bar appears only for work that takes longer.
    """
    if not console.is_terminal:
        yield Lines(console, what, total).advance
        return
    columns = (TextColumn("{task.description}"), BarColumn(24), MofNCompleteColumn(), TimeRemainingColumn())
    bar, begun = Progress(*columns, console=console, transient=True), time.monotonic()
    task = bar.add_task(what, total=total)

    def advance(count: int) -> None:
        bar.advance(task, count)
        if time.monotonic() - begun >= after_s:
            bar.start()

    try:
        advance(0)
        yield advance
    finally:
        bar.stop()


class Lines:
    """A line every ten seconds: of how many items, how many are done."""

    def __init__(self, console: Console, what: str, total: int) -> None:
        self._console, self.what, self._total = console, what, total
        self.done, self._printed, self._printed_at = 0, 0, time.monotonic()

    def advance(self, count: int) -> None:
        self.done += count
        wait_s = LINE_EVERY_S if self.done != self._printed else SAME_LINE_EVERY_S
        if time.monotonic() - self._printed_at >= wait_s:
            self._printed, self._printed_at = self.done, time.monotonic()
            print_line(self._console, f"{self.what} {self.done:,} of {self._total:,}")
            self._console.file.flush()

    def reach(self, done: int) -> None:
        """The same, by the number that are done."""
        self.advance(done - self.done)


@contextmanager
def megabytes(
    console: Console, what: str, total_bytes: int, *, after_s: float = 0.0
) -> Iterator[Callable[[int], None]]:
    """The same for files: call the function with the number of bytes done since the last call."""
    done = 0
    with progress(console, f"{what}, MB:", total_bytes // MEGABYTE, after_s=after_s) as advance:

        def add(count: int) -> None:
            nonlocal done
            before, done = done, done + count
            if done // MEGABYTE > before // MEGABYTE:
                advance(done // MEGABYTE - before // MEGABYTE)

        yield add
