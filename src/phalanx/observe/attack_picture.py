"""Draw some samples before and after an attack, with the change between them and what the model answers."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from phalanx.atomic import write_atomically
from phalanx.errors import UserError
from phalanx.observe.class_names import class_names, cut

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Picture = npt.NDArray[np.float32]  # (height, width, channels), 0 to 1
_LONGEST_NAME = 16
_COLUMN = 1.75  # inches
_WRONG, _RIGHT = "#D55E00", "#0072B2"


@dataclass(frozen=True)
class AttackedSample:
    """One sample: its pixels before and after, and the answer to both with its probability."""

    before: Picture
    after: Picture
    label: int
    answers: tuple[int, int]
    probabilities: tuple[float, float]


def draw_attack(samples: Sequence[AttackedSample], classes: list[str], title: str, out: Path) -> None:
    """A column for each sample: the image, the change made visible around grey, the attacked image."""
    from matplotlib.figure import Figure

    names = [cut(name, _LONGEST_NAME) for name in class_names(classes, _LONGEST_NAME).shown]
    count = len(samples)
    figure = Figure(figsize=(max(5.5, 0.9 + _COLUMN * count), 7.3), layout="constrained", dpi=130)
    axes = figure.subplots(3, count, squeeze=False)
    largest = max(float(np.abs(one.after - one.before).max()) for one in samples)
    factor = 0.5 / max(largest, 1e-6)  # the largest change becomes black or white
    for column, one in enumerate(samples):
        change = np.clip(0.5 + (one.after - one.before) * factor, 0, 1)
        for row, pixels in enumerate((one.before, change, one.after)):
            _show(axes[row][column], pixels)
        axes[0][column].set_title(names[one.label], fontsize=11, fontweight="bold", parse_math=False)
        for row, which in ((0, 0), (2, 1)):
            answer = one.answers[which]
            axes[row][column].set_xlabel(
                f"{names[answer]}\n{100 * one.probabilities[which]:.0f} %",
                fontsize=9.5,
                color=_RIGHT if answer == one.label else _WRONG,
                parse_math=False,
            )
    for row, text in enumerate(("image", f"change, {factor:.3g}×,\naround grey", "attacked image")):
        axes[row][0].set_ylabel(text, fontsize=10)
    figure.suptitle(title, fontsize=11, parse_math=False)
    figure.supxlabel(
        "above: the true class; below an image: the model's answer, blue if right, with its probability",
        fontsize=8.5,
        color="0.35",
    )
    try:
        with write_atomically(out) as file:
            figure.savefig(file, format="png")
    except OSError as error:
        raise UserError(f"{out} cannot be written", why=error.strerror or str(error), remedy="another --out") from error


def _show(axes: "Axes", pixels: Picture) -> None:
    shown = pixels[..., 0] if pixels.shape[-1] == 1 else pixels
    axes.imshow(np.clip(shown, 0, 1), cmap="gray", vmin=0, vmax=1, interpolation="nearest")
    axes.set_xticks([])
    axes.set_yticks([])
    for side in axes.spines.values():
        side.set_color("0.8")
