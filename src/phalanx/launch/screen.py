"""The launching terminal: the view of the job, and above it the launcher's own messages and lines of roles."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.text import Text

from phalanx.launch.line_view import LineView
from phalanx.observe.live import LiveLines, is_ascii, is_live
from phalanx.observe.progress import megabytes, progress
from phalanx.observe.tables import as_utf8
from phalanx.observe.view_lines import view_lines


class Screen:
    """Shows the first trainer's output and all roles' errors, each on the stream that it came from.

    On a terminal, step lines become a live view. With `quiet`, the first trainer writes to the terminal itself: then
    only warnings are shown.
    """

    def __init__(self, console: Console, *, quiet: bool = False) -> None:
        self._console, self._quiet = console, quiet
        self._view: LineView | None = None
        self._live: LiveLines | None = None

    def follow(self, roles: Callable[[], Sequence[dict[str, Any]]]) -> None:
        """Show the view of a job whose roles are these."""
        if not self._quiet and self._is_live():
            self._view = LineView(roles)
            self._live = LiveLines(self._console, self._draw)

    @property
    def is_shared(self) -> bool:
        """Whether the first trainer draws on this terminal itself: what is printed then, it draws over."""
        return self._quiet and self._is_live()

    def _is_live(self) -> bool:
        return is_live(self._console) and sys.stdout.isatty()

    def close(self) -> None:
        """The view goes away; what was printed stays."""
        if self._live is not None:
            self._live.stop()

    def _draw(self, columns: int, rows: int) -> list[Text]:
        view = self._view.view() if self._view is not None and self._view.begun else None
        return view_lines(view, columns, rows, ascii_only=is_ascii(self._console)) if view else []

    def warn(self, text: str) -> None:
        """Show a message, also with `quiet`."""
        self._console.print(Text(text), soft_wrap=True)

    def info(self, text: str) -> None:
        """Show a message, unless `quiet`."""
        if not self._quiet:
            self.warn(text)

    def role_line(self, role: str, host: str, stream: str, text: str) -> None:
        """Show a line of a role, or take it into the view."""
        if self._quiet or not (role == "trainer-0" or stream == "err"):
            return
        line = f"{role}@{host} | {text}"
        if self._view is None or self._live is None:
            out = Console(file=sys.stdout) if stream == "out" else self._console
            out.file.write(as_utf8(line) + "\n")  # as the role wrote it, with colours of the user's own
            out.file.flush()
        elif role == "trainer-0" and stream == "out" and self._view.take(text):
            self._live.start()
        else:
            self._console.print(Text(as_utf8(line)), soft_wrap=True)

    @contextmanager
    def progress(self, what: str, total: int) -> Iterator[Callable[[int], None]]:
        """A bar for work of so many items."""
        if self._quiet:
            yield lambda count: None
            return
        with progress(self._console, what, total) as advance:
            yield advance

    @contextmanager
    def megabytes(self, what: str, total_bytes: int) -> Iterator[Callable[[int], None]]:
        """The same for files, if they take long."""
        if self._quiet:
            yield lambda count: None
            return
        with megabytes(self._console, what, total_bytes, after_s=1.0) as advance:
            yield advance
