"""Class names on the axes and in the tables of a matplotlib figure: as text, or as images of colour emoji."""

from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from phalanx.observe.class_names import ClassNames
from phalanx.observe.text_images import text_image

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.transforms import Transform

INK = (0, 0, 0)
FINER = 2  # pixels of an image of a name for each of the figure's
PAD = 7.0  # points between the axis and its names: a tick and the space after it


def label_axis(axes: "Axes", side: Literal["x", "y"], names: ClassNames, size: float, *, upright: bool = False) -> None:
    """Name the places 0, 1, 2 … of an axis. Along x the names stand on end, unless they are `upright`."""
    images = [number for number, name in enumerate(names.shown) if names.lettering.way(name) == "image"]
    texts = list(names.shown)
    for number in images:
        texts[number] = _blank(names, number)
    ticks = axes.set_xticks if side == "x" else axes.set_yticks
    turn = 90 if side == "x" and not upright else 0
    ticks(range(len(texts)), texts, fontsize=size, rotation=turn, family=names.lettering.families, parse_math=False)
    marks = (axes.xaxis if side == "x" else axes.yaxis).get_ticklabels()
    for number in images:
        marks[number].set_alpha(0)  # it keeps the place of the image
        if side == "x":
            place, where, aligned, offset = (number, 0), axes.get_xaxis_transform(), (0.5, 1.0), (0.0, -PAD)
        else:
            place, where, aligned, offset = (0, number), axes.get_yaxis_transform(), (1.0, 0.5), (-PAD, 0.0)
        _add_image(axes, names.shown[number], names, place, where, size, aligned, offset, turn)


def write_name(axes: "Axes", names: ClassNames, place: tuple[float, float], size: float, text: str) -> None:
    """Write a text that holds a name at a place in 0..1 of the axes: its left end, half of its height."""
    if names.lettering.way(text) == "image":
        _add_image(axes, text, names, place, axes.transAxes, size, (0.0, 0.5), (0.0, 0.0), 0)
        return
    axes.text(
        *place,
        text,
        fontsize=size,
        va="center",
        transform=axes.transAxes,
        family=names.lettering.families,
        parse_math=False,
    )


def _blank(names: ClassNames, number: int) -> str:
    """Zeros that are as wide as the name."""
    width = text_image(names.shown[number], names.lettering, 20, INK).width
    return "0" * max(1, round(width / (0.636 * 20)))  # the width of a digit of DejaVu Sans


def _add_image(
    axes: "Axes",
    text: str,
    names: ClassNames,
    place: tuple[float, float],
    where: "Transform",
    size: float,
    aligned: tuple[float, float],
    offset: tuple[float, float],
    turn: int,
) -> None:
    from matplotlib.offsetbox import AnnotationBbox, OffsetImage

    figure: Any = axes.figure
    pixels = FINER * size * figure.dpi / 72
    image = text_image(text, names.lettering, pixels, INK).rotate(turn, expand=True)
    box = AnnotationBbox(
        OffsetImage(np.asarray(image), zoom=72 / figure.dpi / FINER),
        place,
        offset,
        xycoords=where,
        boxcoords="offset points",
        box_alignment=aligned,
        frameon=False,
        pad=0,
    )
    box.set_in_layout(False)
    axes.add_artist(box)
