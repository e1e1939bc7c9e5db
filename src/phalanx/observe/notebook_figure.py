"""A matplotlib figure that a notebook shows by itself, without pyplot and without a chosen backend."""

from io import BytesIO

from matplotlib.figure import Figure


class NotebookFigure(Figure):
    """A Figure that knows how to be shown as PNG."""

    def _repr_png_(self) -> bytes:
        out = BytesIO()
        self.savefig(out, format="png")
        return out.getvalue()
