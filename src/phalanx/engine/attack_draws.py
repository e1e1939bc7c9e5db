"""What attacks draw: first changes, wrong classes, and which samples stay clean; each from (seed, epoch, sample)."""

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from phalanx.data.order import Indices
from phalanx.data.random import uniform


def first_changes(
    images: Tensor, norm: str, eps: float, seed: int, stream: str, epoch: int, indices: Indices
) -> Tensor:
    """A change of each image, uniform within eps: in each pixel, or in the ball of the L2 norm."""
    count = images[0].numel()
    draws = uniform(seed, f"adversarial {stream}", epoch, indices, count)
    if norm == "linf":
        changes = (2 * draws - 1) * eps
    else:
        # A normal draw has a uniform direction; half a step away from 0, where its logarithm has no end.
        angles = uniform(seed, f"adversarial {stream} angle", epoch, indices, count)
        normal = np.sqrt(-2 * np.log(draws + 2.0**-54)) * np.cos(2 * np.pi * angles)
        radius = uniform(seed, f"adversarial {stream} radius", epoch, indices) ** (1 / count)
        changes = normal / np.linalg.norm(normal, axis=1, keepdims=True) * radius * eps
    # Beside the image in memory as it is in meaning: the same pixel has the same draw in any layout.
    made = torch.from_numpy(changes.astype(np.float32)).view(images.shape).to(images.device)
    return torch.empty_like(images, dtype=torch.float32).copy_(made)


def wrong_classes(labels: Tensor, num_classes: int, seed: int, epoch: int, indices: Indices) -> Tensor:
    """A class for each sample that is not its own, all of them equally often."""
    draws = uniform(seed, "adversarial target", epoch, indices)[:, 0]
    offsets = torch.from_numpy(1 + (draws * (num_classes - 1)).astype(np.int64)).to(labels.device)
    return (labels + offsets) % num_classes


def chosen(share: float, seed: int, stream: str, epoch: int, indices: Indices) -> npt.NDArray[np.bool_]:
    """Whether a sample is one of that share."""
    return uniform(seed, f"adversarial {stream}", epoch, indices)[:, 0] < share
