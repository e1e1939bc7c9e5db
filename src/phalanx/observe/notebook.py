"""What a notebook shows of a run: rich's output, with the view of the job, which is redrawn in place."""

import io
import time

from rich.console import Console, Group, RenderableType

from phalanx.observe.display import LiveDisplay, Tick
from phalanx.runs.events import Event

REDRAW_EVERY_S = 0.25
_COLUMNS, _ROWS = 100, 40


class NotebookDisplay(LiveDisplay):
    """The view of a terminal as HTML. Needs IPython alone; rich's own way would need ipywidgets."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        from IPython.display import HTML, DisplayHandle

        self._html, self._handle = HTML, DisplayHandle()
        self._shown, self._drawn = False, 0.0

    def take(self, event: Event) -> None:
        super().take(event)
        self._redraw()

    def tick(self, tick: Tick) -> None:
        self._advance(tick)
        self._redraw()

    def working(self, what: str, done: int, total: int) -> None:
        super().working(what, done, total)
        self._redraw()

    def close(self) -> None:
        """The view goes away; what was printed stays."""
        if self._shown:
            self._handle.update(self._html(""))

    def _redraw(self) -> None:
        if self._last is None or time.monotonic() - self._drawn < REDRAW_EVERY_S:
            return
        page = self._html(to_html(Group(*self._draw(_COLUMNS, _ROWS))))
        if self._shown:
            self._handle.update(page)
        else:
            self._handle.display(page)
        self._shown, self._drawn = True, time.monotonic()


def to_html(shown: RenderableType) -> str:
    """As rich prints it in a terminal of 100 columns."""
    recorder = Console(file=io.StringIO(), record=True, width=_COLUMNS, force_terminal=True, force_jupyter=False)
    recorder.print(shown)
    return recorder.export_html(inline_styles=True, code_format="<pre style='margin:0'>{code}</pre>")
