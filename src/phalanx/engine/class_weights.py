"""Weights of the classes in the loss, for data in which some classes are rare."""

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from phalanx.config.schema import LossConfig
from phalanx.errors import UserError


def class_weights(config: LossConfig, labels: npt.NDArray[np.int64], num_classes: int) -> Tensor | None:
    """A weight for each class, or None. `balanced`: all classes count alike, and the mean over the data is 1."""
    given = config.class_weights
    if given is None:
        return None
    if given == "balanced":
        counts = np.bincount(labels, minlength=num_classes)
        present = np.count_nonzero(counts)
        weights = np.where(counts > 0, len(labels) / (present * np.maximum(counts, 1)), 0.0)
        return torch.from_numpy(weights).float()
    if len(given) != num_classes:
        raise UserError(
            f"loss.class_weights has {len(given)} values",
            why=f"the data has {num_classes} classes",
            remedy=f"give {num_classes}, in the order of the classes, or loss.class_weights=balanced",
        )
    return torch.tensor(given, dtype=torch.float32)
