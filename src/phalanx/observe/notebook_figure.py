"""A matplotlib figure that a notebook shows by itself, without pyplot and without a chosen backend."""

from io import BytesIO
from typing import Any

from matplotlib import rc_context
from matplotlib.figure import Figure


class NotebookFigure(Figure):
    """A Figure that knows how to be shown as PNG. The `settings` of matplotlib hold whenever it is written."""

    def __init__(self, *, settings: Any, figsize: tuple[float, float], dpi: float) -> None:
        super().__init__(figsize=figsize, layout="constrained", dpi=dpi)
        self._settings = settings

    def savefig(self, *args: Any, **options: Any) -> None:
        with rc_context(self._settings):
            super().savefig(*args, **options)

    def _repr_png_(self) -> bytes:
        out = BytesIO()
        self.savefig(out, format="png")
        return out.getvalue()
