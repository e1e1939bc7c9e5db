"""The user's own transform: (image, generator) → image, the last of the pixel operations.

The image is a uint8 tensor (channels, height, width) at the model's size, after crop and flip and before mixing. The
generator is the sample's own: a pure function of seed, epoch and sample. So a transform that draws from it alone makes
the same images on any number of workers, threads and data servers, and after a resume.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from phalanx.custom import load
from phalanx.custom.construct import construct, parameters_of
from phalanx.data.order import Indices
from phalanx.data.random import bits
from phalanx.errors import UserError


@dataclass(frozen=True)
class UserTransform:
    """A PixelOp that calls the user's function once for each image."""

    name: str
    function: Callable[..., Any]
    draws: bool  # whether it takes a generator
    seed: int

    def __call__(self, images: Tensor, indices: Indices, epoch: int) -> None:
        seeds = (bits(self.seed, "transform", epoch, indices)[:, 0] >> 1).tolist()
        for image, seed in zip(images, seeds, strict=True):
            drawn = (torch.Generator().manual_seed(seed),) if self.draws else ()
            made = self.function(image, *drawn)
            self._check(made, image)
            image.copy_(made)

    def _check(self, made: Any, image: Tensor) -> None:
        """Refuse what is not an image like the one that was given."""
        if isinstance(made, Tensor) and made.dtype == torch.uint8 and made.shape == image.shape:
            return
        given = f"{made.dtype} {list(made.shape)}" if isinstance(made, Tensor) else type(made).__name__
        raise UserError(
            f"augment.transform: {self.name} returned {given}",
            why=f"it gets and returns a uint8 tensor (channels, height, width), here {list(image.shape)}",
            remedy="convert the result: image.round().clamp(0, 255).to(torch.uint8)",
        )


def user_transform(reference: str, options: Mapping[str, Any], seed: int) -> UserTransform:
    """The transform that a reference names: a function, or a class whose instances are called."""
    value = load(reference)
    if inspect.isclass(value):
        value, options = construct(value, reference, "augment.options", {}, options), {}
    if not callable(value):
        raise UserError(
            f"augment.transform: {reference} is a {type(value).__name__}, which cannot be called",
            why="a transform is a function (image, generator) → image, or a class with __call__",
            remedy="name a function",
        )
    taken = [name for name in parameters_of(value) if name not in options]
    return UserTransform(reference, partial(value, **options) if options else value, len(taken) > 1, seed)
