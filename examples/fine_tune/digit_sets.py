"""Some of scikit-learn's digits."""

import numpy as np
from sklearn.datasets import load_digits


class Digits:
    """The digits from `first` to `last`. Every fifth sample is validation."""

    thread_safe = True

    def __init__(self, split: str, first: int, last: int) -> None:
        found = load_digits()
        is_val = np.arange(len(found.target)) % 5 == 4
        chosen = (found.target >= first) & (found.target <= last) & (is_val == (split == "val"))
        self.images = np.round(found.images[chosen] * (255 / 16)).astype(np.uint8)
        self.targets = found.target[chosen] - first
        self.classes = [str(digit) for digit in range(first, last + 1)]

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, index: int) -> tuple[np.ndarray, int]:
        return self.images[index], int(self.targets[index])
