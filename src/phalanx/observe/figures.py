"""Write figures to files: the ending chooses PNG, SVG or PDF."""

from pathlib import Path
from typing import TYPE_CHECKING

from phalanx.atomic import write_atomically
from phalanx.errors import UserError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ENDINGS = ("png", "svg", "pdf")


def refuse_other_endings(out: Path) -> None:
    """Refuse an unknown ending, before the work for the figure starts."""
    if out.suffix.lstrip(".") not in ENDINGS:
        raise UserError(
            f"{out.name} has no known picture format",
            why=f"endings: {', '.join(ENDINGS)}",
            remedy=f"name it {out.stem or 'figure'}.png",
        )


def save_figure(figure: "Figure", *outs: Path) -> None:
    """Into one file or several. What is where is worked out once."""
    for out in outs:
        refuse_other_endings(out)
        try:
            with write_atomically(out) as file:
                figure.savefig(file, format=out.suffix.lstrip("."))
        except OSError as error:
            raise UserError(
                f"{out} cannot be written", why=error.strerror or str(error), remedy="choose another place"
            ) from error
        figure.set_layout_engine("none")
