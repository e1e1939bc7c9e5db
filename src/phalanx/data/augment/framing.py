"""Framings: which box of each image is cropped, and whether it is flipped. Sources crop and resize.

A random view is a pure function of (seed, epoch, index): it does not depend on the batch.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from phalanx.config.schema import AugmentConfig, DataConfig, Flip
from phalanx.data.base import Framing, Source, View
from phalanx.data.order import Indices
from phalanx.data.random import uniform
from phalanx.errors import UserError

Sizes = npt.NDArray[np.int64]  # (n, 2): height and width of each image
Numbers = npt.NDArray[np.float64] | npt.NDArray[np.int64]
NUM_TRIES = 10  # as torchvision's RandomResizedCrop, before it falls back to the centre


@dataclass(frozen=True)
class Whole:
    """The whole image: for data without a margin around the subject."""

    size: int
    interpolation: str = "bilinear"
    flip: Flip = 0.0
    seed: int = 0
    pad_mode: ClassVar[str] = "zero"  # never needed: the box stays inside

    def views(self, indices: Indices, sizes: Sizes, epoch: int) -> list[View]:
        corner = np.zeros(len(indices))
        return _views(corner, corner, sizes[:, 0], sizes[:, 1], _flips(self.flip, self.seed, epoch, indices))


@dataclass(frozen=True)
class CentreCrop:
    """The centred square that keeps `crop_share` of the shorter side: how photographs are evaluated."""

    size: int
    crop_share: float = 0.875
    interpolation: str = "bilinear"
    flip: Flip = 0.0
    seed: int = 0
    pad_mode: ClassVar[str] = "zero"  # never needed: the box stays inside

    def views(self, indices: Indices, sizes: Sizes, epoch: int) -> list[View]:
        tops, lefts, sides = _centred_squares(sizes, self.crop_share)
        return _views(tops, lefts, sides, sides, _flips(self.flip, self.seed, epoch, indices))


@dataclass(frozen=True)
class PadCrop:
    """The centred square moved by up to `pad` pixels each way: CIFAR's usual padding and random crop.

    The box may leave the image; `pad_mode` says how that is filled. `pad` counts pixels of the result, so images of
    another size than the model's move by the same share (and those of its size by whole pixels).
    """

    size: int
    pad: int = 4
    pad_mode: str = "zero"
    interpolation: str = "bilinear"
    flip: Flip = 0.0
    seed: int = 0

    def views(self, indices: Indices, sizes: Sizes, epoch: int) -> list[View]:
        draws = uniform(self.seed, "pad crop", epoch, indices, 3)
        moves = np.floor(draws[:, :2] * (2 * self.pad + 1)) - self.pad
        tops, lefts, sides = _centred_squares(sizes, 1.0)
        moves *= (sides / self.size)[:, None]
        flips = _flips(self.flip, self.seed, epoch, indices, draws[:, 2])
        return _views(tops + moves[:, 0], lefts + moves[:, 1], sides, sides, flips)


@dataclass(frozen=True)
class RandomResizedCrop:
    """A box of random area and aspect somewhere in the image, drawn as torchvision's RandomResizedCrop draws it."""

    size: int
    scale: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    interpolation: str = "bilinear"
    flip: Flip = 0.0
    seed: int = 0
    pad_mode: ClassVar[str] = "zero"  # never needed: the box stays inside

    def views(self, indices: Indices, sizes: Sizes, epoch: int) -> list[View]:
        draws = uniform(self.seed, "resized crop", epoch, indices, 2 * NUM_TRIES + 3)
        places, flips = draws[:, :2], _flips(self.flip, self.seed, epoch, indices, draws[:, 2])
        areas, aspects = draws[:, 3 : 3 + NUM_TRIES], draws[:, 3 + NUM_TRIES :]
        areas = _between(areas, *self.scale) * (sizes[:, :1] * sizes[:, 1:])
        aspects = np.exp(_between(aspects, np.log(self.ratio[0]), np.log(self.ratio[1])))
        tries = np.rint(np.sqrt(np.stack([areas / aspects, areas * aspects], axis=2)))  # (n, tries, 2)

        fits = np.all((tries > 0) & (tries <= sizes[:, None]), axis=2)
        first = np.argmax(fits, axis=1)
        boxes = tries[np.arange(len(indices)), first]
        corners = np.floor(places * (sizes - boxes + 1))

        none_fits = ~np.any(fits, axis=1)
        boxes[none_fits] = _within_ratio(sizes[none_fits], self.ratio)
        corners[none_fits] = (sizes[none_fits] - boxes[none_fits]) // 2
        return _views(corners[:, 0], corners[:, 1], boxes[:, 0], boxes[:, 1], flips)


def train_framing(augment: AugmentConfig, data: DataConfig, size: int, seed: int, source: Source) -> Framing:
    """The framing for training, at the model's `size`."""
    if augment.crop == "pad":
        if augment.pad_mode == "reflect" and augment.pad >= size:
            raise UserError(
                f"augment.pad {augment.pad} is too much to reflect in an image of {size}×{size}",
                why="a reflection holds no more pixels than the image",
                remedy=f"augment.pad of {size - 1} or less, or augment.pad_mode=zero",
            )
        return PadCrop(size, augment.pad, augment.pad_mode, data.interpolation, augment.flip, seed)
    if augment.crop == "random-resized":
        for name, (low, high) in (("scale", augment.scale), ("ratio", augment.ratio)):
            if low > high:
                raise UserError(
                    f"augment.{name} runs from {low:g} down to {high:g}", remedy=f"augment.{name}=[{high:g},{low:g}]"
                )
        return RandomResizedCrop(size, augment.scale, augment.ratio, data.interpolation, augment.flip, seed)
    return still_framing(data, size, has_margin(source, size), augment.flip, seed)


def eval_framing(data: DataConfig, size: int, source: Source) -> Framing:
    """The framing for evaluation: no random choices."""
    return still_framing(data, size, has_margin(source, size))


def still_framing(data: DataConfig, size: int, margin: bool, flip: Flip = 0.0, seed: int = 0) -> Framing:
    """The centre of images with a margin around the subject, all of those without."""
    if margin:
        return CentreCrop(size, data.crop_share, data.interpolation, flip, seed)
    return Whole(size, data.interpolation, flip, seed)


def has_margin(source: Source, size: int) -> bool:
    """Whether images have a margin around the subject: photographs do, small squares such as CIFAR's do not."""
    if source.extent is None:
        return True
    height, width = source.extent
    return height != width or height > size


def _flips(
    flip: Flip, seed: int, epoch: int, indices: Indices, drawn: npt.NDArray[np.float64] | None = None
) -> npt.NDArray[np.bool_]:
    """Which samples are flipped; `drawn` has the random numbers of framings that draw them anyway."""
    if flip == "alternate":
        return (uniform(seed, "flip", 0, indices)[:, 0] < 0.5) ^ (epoch % 2 == 1)
    if flip == 0:
        return np.zeros(len(indices), dtype=np.bool_)
    return (uniform(seed, "flip", epoch, indices)[:, 0] if drawn is None else drawn) < flip


def _centred_squares(sizes: Sizes, share: float) -> tuple[npt.NDArray[np.float64], ...]:
    """Tops, lefts and sides of the squares that keep `share` of the shorter side."""
    sides = sizes.min(axis=1) * share
    corners = (sizes - sides[:, None]) / 2
    return corners[:, 0], corners[:, 1], sides


def _between(draws: npt.NDArray[np.float64], low: float, high: float) -> npt.NDArray[np.float64]:
    return low + draws * (high - low)


def _within_ratio(sizes: Sizes, ratio: tuple[float, float]) -> npt.NDArray[np.float64]:
    """The largest box of each image whose aspect (width / height) lies in the range."""
    heights, widths = sizes[:, 0].astype(np.float64), sizes[:, 1].astype(np.float64)
    return np.stack(
        [np.minimum(heights, np.rint(widths / ratio[0])), np.minimum(widths, np.rint(heights * ratio[1]))], axis=1
    )


def _views(
    tops: Numbers, lefts: Numbers, heights: Numbers, widths: Numbers, flips: npt.NDArray[np.bool_]
) -> list[View]:
    columns = [column.astype(np.float64).tolist() for column in (tops, lefts, heights, widths)]
    return [View(*row) for row in zip(*columns, flips.tolist(), strict=True)]
