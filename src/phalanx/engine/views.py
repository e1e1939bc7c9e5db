"""The views of an image that an evaluation asks a model about, to average its answers."""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from phalanx.config.schema import EvalConfig


class Views(NamedTuple):
    """Which there are besides the image itself."""

    mirror: bool = False  # its mirror image
    shift: int = 0  # moved by so many pixels, up left and down right: half of the weight is theirs

    def of(self, images: Tensor) -> Iterator[tuple[Tensor, float]]:
        """Each view of a batch, with its weight; together they have 1."""
        moved = list(self._moved(images))
        for group, weight in [([images], 0.5 if moved else 1.0), (moved, 0.5)]:
            for view in group:
                share = weight / len(group) / (2 if self.mirror else 1)
                yield view, share
                if self.mirror:
                    yield view.flip(3), share

    def _moved(self, images: Tensor) -> Iterator[Tensor]:
        if self.shift:
            height, width = images.shape[2:]
            # What comes into view is a reflection, as far as the image is large enough for one.
            mode = "reflect" if self.shift < min(height, width) else "replicate"
            padded = F.pad(images, (self.shift,) * 4, mode=mode)
            for corner in (0, 2 * self.shift):
                yield padded[:, :, corner : corner + height, corner : corner + width].contiguous(
                    memory_format=torch.channels_last
                )


ONE_VIEW = Views()


def views_of(config: EvalConfig) -> Views:
    """As it is configured."""
    return Views(config.mirror, config.shift)
