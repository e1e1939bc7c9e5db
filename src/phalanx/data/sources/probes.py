"""Size, channels, mean and deviation of a dataset's images, from some of them."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from phalanx.data.base import Pixels
from phalanx.data.decode.images import BadImage

PROBES = 256  # images that are looked at


@dataclass(frozen=True)
class Probed:
    """What some images say about all: the most channels of any, height and width if all have the same, statistics."""

    channels: int
    extent: tuple[int, int] | None
    mean: tuple[float, ...]  # per channel, in 0..1
    std: tuple[float, ...]


def probe(count: int, image: Callable[[int], Pixels]) -> Probed | None:
    """Look at some of `count` images, evenly spaced; None if none of them can be read."""
    images = []
    for index in np.unique(np.linspace(0, count - 1, min(PROBES, count)).astype(np.int64)).tolist():
        try:
            images.append(image(index))
        except (BadImage, OSError):
            continue  # training and evaluation report it
    if not images:
        return None
    channels = max(each.shape[2] for each in images)
    images = [np.repeat(each, channels, axis=2) if each.shape[2] < channels else each for each in images]
    shapes = {each.shape[:2] for each in images}
    flat = np.concatenate([each.reshape(-1, channels) for each in images]).astype(np.float64) / 255
    return Probed(
        channels,
        next(iter(shapes)) if len(shapes) == 1 else None,
        tuple(np.round(flat.mean(axis=0), 4).tolist()),
        tuple(np.round(np.maximum(flat.std(axis=0), 1 / 255), 4).tolist()),
    )
