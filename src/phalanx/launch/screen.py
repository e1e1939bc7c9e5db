"""What the launching terminal shows: the launcher's own words, and roles' lines with their name and host in front."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.text import Text

from phalanx.observe.progress import progress
from phalanx.observe.tables import print_line


class Screen:
    """The first trainer's output and everybody's errors are shown, each on the stream where it belongs.

    With `quiet`, where the first trainer has the terminal to itself, no lines are, and only what goes wrong is said.
    """

    def __init__(self, console: Console, *, quiet: bool = False) -> None:
        self._console, self._quiet = console, quiet

    def say(self, text: str) -> None:
        self._console.print(Text(text), soft_wrap=True)

    def tell(self, text: str) -> None:
        """What is good to know when hosts are many."""
        if not self._quiet:
            self.say(text)

    def line(self, role: str, host: str, stream: str, text: str) -> None:
        if not self._quiet and (role == "trainer-0" or stream == "err"):
            out = Console(file=sys.stdout) if stream == "out" else self._console
            print_line(out, f"{role}@{host} | {text}")
            out.file.flush()

    @contextmanager
    def progress(self, what: str, total: int) -> Iterator[Callable[[int], None]]:
        if self._quiet:
            yield lambda count: None
            return
        with progress(self._console, what, total) as advance:
            yield advance
