"""The focal loss, and two metrics."""

import torch
from torch import Tensor


def focal_loss(logits: Tensor, labels: Tensor, gamma: float = 2.0) -> Tensor:
    """Cross-entropy in which samples count less that the model already answers well: one value per sample."""
    log_p = logits.log_softmax(1).gather(1, labels[:, None])[:, 0]
    return -((1 - log_p.exp()) ** gamma) * log_p


def confidence(logits: Tensor, labels: Tensor) -> Tensor:
    """How sure the model is of its answer: one value per sample, whose mean is the result."""
    return logits.softmax(1).amax(1)


class BalancedAccuracy:
    """The mean of the classes' own accuracies, so that rare classes count as much as frequent ones."""

    def __init__(self, num_classes: int) -> None:
        self.num_classes = num_classes

    def sums(self, logits: Tensor, labels: Tensor) -> dict[str, Tensor]:
        hits = labels[logits.argmax(1) == labels]
        return {
            "correct": torch.bincount(hits, minlength=self.num_classes),
            "samples": torch.bincount(labels, minlength=self.num_classes),
        }

    def result(self, sums: dict[str, Tensor]) -> dict[str, float]:
        present = sums["samples"] > 0
        return {"balanced_accuracy": float((sums["correct"][present] / sums["samples"][present]).mean())}
