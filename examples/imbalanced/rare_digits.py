"""scikit-learn's digits with five rare classes, and balanced accuracy."""

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import Tensor


class RareDigits:
    """Of the digits 5 to 9 the training part has `kept` samples each. Every fifth sample is validation."""

    thread_safe = True

    def __init__(self, split: str, kept: int = 12) -> None:
        found = load_digits()
        self.classes = [str(digit) for digit in range(10)]
        is_val = np.arange(len(found.target)) % 5 == 4
        chosen = np.flatnonzero(is_val == (split == "val"))
        if split == "train":
            limits = [len(chosen)] * 5 + [kept] * 5
            parts = [chosen[found.target[chosen] == digit][:limit] for digit, limit in enumerate(limits)]
            chosen = np.sort(np.concatenate(parts))
        self.images = np.round(found.images[chosen] * (255 / 16)).astype(np.uint8)
        self.targets = found.target[chosen]

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, index: int) -> tuple[np.ndarray, int]:
        return self.images[index], int(self.targets[index])


class BalancedAccuracy:
    """The mean of the classes' own accuracies."""

    def __init__(self, num_classes: int) -> None:
        self.num_classes = num_classes

    def sums(self, logits: Tensor, labels: Tensor) -> dict[str, Tensor]:
        hits = labels[logits.argmax(1) == labels]
        return {
            "correct": torch.bincount(hits, minlength=self.num_classes),
            "samples": torch.bincount(labels, minlength=self.num_classes),
        }

    def result(self, sums: dict[str, Tensor]) -> dict[str, float]:
        return {"balanced_accuracy": float((sums["correct"] / sums["samples"]).mean())}
