"""Attacks: from images to images within eps of them that the model gets wrong. They need gradients of images alone."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from phalanx.config.adversarial_schema import AttackConfig

Loss = Callable[[Tensor], Tensor]  # logits → what the attack increases, summed over samples
_SCALE = 128.0  # of the loss, so that half precision keeps small gradients; steps do not depend on it


@dataclass(frozen=True)
class PixelRange:
    """The model's input in pixels of 0 to 1: input = (pixel - mean) / std, channel by channel."""

    mean: Tensor
    std: Tensor

    @classmethod
    def of(cls, mean: list[float], std: list[float], device: torch.device) -> Self:
        return cls(*(torch.tensor(each, device=device).view(1, -1, 1, 1) for each in (mean, std)))

    def pixels(self, inputs: Tensor) -> Tensor:
        return inputs * self.std + self.mean


@dataclass(frozen=True)
class Attack:
    """Projected steps up a loss, in pixel units."""

    norm: str
    eps: float
    step: float
    steps: int

    @classmethod
    def of(cls, config: AttackConfig) -> Self:
        return cls(config.norm, config.eps, config.step_size, config.num_steps)

    def with_steps(self, steps: int, step: float) -> Self:
        return replace(self, steps=steps, step=step)

    def __call__(
        self, forward: Callable[[Tensor], Tensor], images: Tensor, start: Tensor, loss: Loss, pixels: PixelRange
    ) -> Tensor:
        """Attacked images. `start` is the first change, in pixels. Only the gradient of the images is computed."""
        clean = pixels.pixels(images)
        change = self._within(start, clean)
        for _ in range(self.steps):
            with torch.enable_grad():
                seen = (images + change / pixels.std).requires_grad_()
                value = loss(forward(seen).float()) * _SCALE
            (gradient,) = torch.autograd.grad(value, [seen])
            change = self.next_change(change, gradient, clean, pixels)
        return images + change / pixels.std

    def first_change(self, start: Tensor, images: Tensor, pixels: PixelRange) -> Tensor:
        """The nearest change to `start` that is allowed."""
        return self._within(start, pixels.pixels(images))

    def next_change(self, change: Tensor, gradient: Tensor, clean: Tensor, pixels: PixelRange) -> Tensor:
        """One step on, by the gradient of the inputs. `clean` are pixels."""
        # An overflow of half precision has no direction. The gradient of a pixel: inputs change by 1/std with it.
        finite = torch.nan_to_num(gradient.float(), posinf=0.0, neginf=0.0)
        return self._within(change + self.step * self._direction(finite / pixels.std), clean)

    def _direction(self, gradient: Tensor) -> Tensor:
        if self.norm == "linf":
            return gradient.sign()
        return gradient / _lengths(gradient).clamp_min(1e-12)

    def _within(self, change: Tensor, clean: Tensor) -> Tensor:
        """The nearest allowed change: of eps or less, to pixels of 0 to 1."""
        if self.norm == "linf":
            change = change.clamp(-self.eps, self.eps)
        else:
            change = change * (self.eps / _lengths(change).clamp_min(1e-12)).clamp_max(1.0)
        return (clean + change).clamp(0.0, 1.0) - clean


def _lengths(values: Tensor) -> Tensor:
    """The L2 norm of each image."""
    lengths: Tensor = torch.linalg.vector_norm(values, dim=(1, 2, 3), keepdim=True)
    return lengths
