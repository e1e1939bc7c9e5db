"""Pictures of shapes, drawn when they are asked for, and a transform that adds noise."""

import numpy as np
import torch
from PIL import Image, ImageDraw
from torch import Tensor
from torch.utils.data import Dataset

SIDES = {"circle": 60, "square": 4, "triangle": 3}


class Shapes(Dataset):
    """Shapes of random size, place, angle and colour. Sample `i` is always the same picture."""

    thread_safe = True  # __getitem__ changes nothing, so several threads may call it

    def __init__(self, split: str, samples: int = 600) -> None:
        self.classes = list(SIDES)
        self.first = 0 if split == "train" else 1_000_000  # numbers that the training part does not have
        self.samples = samples if split == "train" else samples // 3
        self.targets = [index % len(SIDES) for index in range(self.samples)]  # saves reading all images at the start

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> tuple[Image.Image, int]:
        label = self.targets[index]
        draw = np.random.default_rng(self.first + index)
        image = Image.new("RGB", (24, 24), tuple(draw.integers(0, 100, 3).tolist()))
        (x, y), radius, angle = draw.uniform(10, 14, 2), draw.uniform(6, 9), draw.uniform(-15, 15)
        colour = tuple(draw.integers(150, 256, 3).tolist())
        sides = list(SIDES.values())[label]
        ImageDraw.Draw(image).regular_polygon((x, y, radius), sides, rotation=angle, fill=colour)
        return image, label


def speckle(image: Tensor, generator: torch.Generator, share: float = 0.02) -> Tensor:
    """A share of the pixels turns white."""
    white = torch.rand(image.shape[1:], generator=generator) < share
    return image.masked_fill(white, 255)
