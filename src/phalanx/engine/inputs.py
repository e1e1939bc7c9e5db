"""From a micro-batch of bytes to what the model sees: moved to the device, normalised, made smaller, erased, mixed."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from phalanx.config.schema import AugmentConfig
from phalanx.data.augment.mixing import Targets, erase, mix, to_input
from phalanx.data.base import MicroBatch
from phalanx.machine.settings import Settings

Sizes = tuple[tuple[int, int], ...]  # before which step images have how many pixels a side; whole ones after the last


@dataclass(frozen=True)
class Inputs:
    """The device's part of the input; pure in (seed, epoch, place), like the rest of the pipeline."""

    settings: Settings
    augment: AugmentConfig
    mean: list[float]
    std: list[float]
    seed: int
    sizes: Sizes = ()

    def training(self, micro: MicroBatch, epoch: int, start: int, step: int) -> tuple[Tensor, Targets]:
        """Augmented images and what the model should say."""
        images, labels = self.plain(micro)
        size = next((size for until, size in self.sizes if step < until), None)
        if size is not None:
            smaller = F.interpolate(images, (size, size), mode="bilinear", antialias=True)
            images = smaller.contiguous(memory_format=self.settings.memory_format)
        if self.augment.erase:
            erase(images, micro.indices.numpy(), self.augment.erase, self.seed, epoch)
        return images, mix(images, labels, self.augment, self.seed, epoch, start, micro.number)

    def plain(self, micro: MicroBatch) -> tuple[Tensor, Tensor]:
        """Normalised images and labels, as in validation."""
        device = self.settings.device
        images = micro.images.to(device, non_blocking=True)
        labels = micro.labels.to(device, non_blocking=True)
        return to_input(images, self.mean, self.std, torch.float32, self.settings.memory_format), labels
