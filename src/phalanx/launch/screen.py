"""The launching terminal: the launcher's own messages, and lines of roles with their name and host in front."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.text import Text

from phalanx.observe.progress import progress
from phalanx.observe.tables import print_line


class Screen:
    """Shows the first trainer's output and all roles' errors, each on the stream that it came from.

    With `quiet`, the first trainer writes to the terminal itself: then only warnings are shown.
    """

    def __init__(self, console: Console, *, quiet: bool = False) -> None:
        self._console, self._quiet = console, quiet

    def warn(self, text: str) -> None:
        """Show a message, also with `quiet`."""
        self._console.print(Text(text), soft_wrap=True)

    def info(self, text: str) -> None:
        """Show a message, unless `quiet`."""
        if not self._quiet:
            self.warn(text)

    def role_line(self, role: str, host: str, stream: str, text: str) -> None:
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
