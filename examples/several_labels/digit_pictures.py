"""Pictures with up to four of scikit-learn's digits: a sample has several labels, or none."""

import numpy as np
from sklearn.datasets import load_digits


class DigitPictures:
    """16×16 pixels with a place for a digit in each quarter, which may stay empty. Validation has digits of its own."""

    thread_safe = True

    def __init__(self, split: str, samples: int = 1600) -> None:
        found = load_digits()
        self.classes = [str(digit) for digit in range(10)]
        is_val = np.arange(len(found.target)) % 5 == 4
        chosen = np.flatnonzero(is_val == (split == "val"))
        draws = np.random.default_rng(len(split)).integers(0, len(chosen), (samples if split == "train" else 500, 4))
        empty = draws % 3 == 0
        digits = np.round(found.images[chosen] * (255 / 16)).astype(np.uint8)[draws]
        digits[empty] = 0
        # (n, 2, 2, 8, 8) → two rows of two quarters
        self.images = digits.reshape(-1, 2, 2, 8, 8).transpose(0, 1, 3, 2, 4).reshape(-1, 16, 16)
        self.targets = np.zeros((len(draws), 10), dtype=np.int64)
        rows = np.repeat(np.arange(len(draws)), 4)
        self.targets[rows[~empty.ravel()], found.target[chosen][draws].ravel()[~empty.ravel()]] = 1

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        return self.images[index], self.targets[index]
