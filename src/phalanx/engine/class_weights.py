"""Weights of the classes in the loss, for data in which some classes are rare."""

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from phalanx.config.schema import LossConfig
from phalanx.data.sources.labelled import class_counts
from phalanx.engine.loss import is_bce
from phalanx.errors import UserError


def class_weights(config: LossConfig, labels: npt.NDArray[np.int64], num_classes: int) -> Tensor | None:
    """A weight for each class, or None. `balanced`: all classes count alike, and the mean over the data is 1.

    With BCE they are weights of the positives: balanced, a class's positives count as much as its negatives.
    """
    given = config.class_weights
    if given is None:
        return None
    counts = class_counts(labels, num_classes)
    if given == "balanced" and is_bce(config, multi_label=labels.ndim == 2):
        negatives = len(labels) - counts
        both = (counts > 0) & (negatives > 0)  # otherwise there is nothing to balance
        return torch.from_numpy(np.where(both, negatives / np.maximum(counts, 1), 1.0)).float()
    if given == "balanced":
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
