"""From a micro-batch of bytes to the model's input: copied to the device, normalised, resized, erased, mixed."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from phalanx.config.schema import AugmentConfig
from phalanx.data.augment.mixing import Targets, erase, mix, to_input
from phalanx.data.base import MicroBatch
from phalanx.machine.settings import Settings

Sizes = tuple[tuple[int, int], ...]  # (step, size): before that step images have that size; then the full size


@dataclass(frozen=True)
class Inputs:
    """The part of the input pipeline that runs on the device: a pure function of (seed, epoch, sample, position)."""

    settings: Settings
    augment: AugmentConfig
    mean: list[float]
    std: list[float]
    seed: int
    sizes: Sizes = ()
    mix_until: int | None = None  # from this step on nothing is mixed
    view_epochs: int | None = None  # so many epochs have views of their own; then they repeat

    def training(self, micro: MicroBatch, epoch: int, start: int, step: int) -> tuple[Tensor, Targets]:
        """Augmented images and their targets."""
        if self.view_epochs is not None:
            epoch %= self.view_epochs
        images, labels = self.plain(micro)
        size = next((size for until, size in self.sizes if step < until), None)
        if size is not None:
            smaller = F.interpolate(images, (size, size), mode="bilinear", antialias=True)
            images = smaller.contiguous(memory_format=self.settings.memory_format)
        if self.augment.erase:
            erase(images, micro.indices.numpy(), self.augment.erase, self.seed, epoch)
        if self.mix_until is not None and step >= self.mix_until:
            return images, Targets(labels)
        return images, mix(images, labels, self.augment, self.seed, epoch, start, micro.number)

    def plain(self, micro: MicroBatch) -> tuple[Tensor, Tensor]:
        """Normalised images and their labels, as for validation."""
        if micro.on_gpu is not None:
            images, labels = micro.on_gpu.arrived()
        else:
            images, labels = (each.to(self.settings.device, non_blocking=True) for each in (micro.images, micro.labels))
        return to_input(images, self.mean, self.std, torch.float32, self.settings.memory_format), labels
