"""Test-time augmentation: the views of an image whose predictions are averaged."""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from phalanx.config.schema import EvalConfig


class Views(NamedTuple):
    """Views in addition to the image itself."""

    mirror: bool = False  # the mirrored image
    shift: int = 0  # pixels: the image shifted up left and down right; these two have half of the weight

    def of(self, images: Tensor) -> Iterator[tuple[Tensor, float]]:
        """Each view of a batch, with its weight. The weights sum to 1."""
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
            # Reflection padding needs an image that is larger than the shift.
            mode = "reflect" if self.shift < min(height, width) else "replicate"
            padded = F.pad(images, (self.shift,) * 4, mode=mode)
            for corner in (0, 2 * self.shift):
                yield padded[:, :, corner : corner + height, corner : corner + width].contiguous(
                    memory_format=torch.channels_last
                )


ONE_VIEW = Views()


def views_of(config: EvalConfig) -> Views:
    """The views of a configuration."""
    return Views(config.mirror, config.shift)
