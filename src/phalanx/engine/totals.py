"""Running sums of loss and correct predictions, which checkpoints save and restore exactly."""

from dataclasses import asdict, dataclass
from typing import Any


@dataclass
class Totals:
    """Sums over samples; means are computed from them."""

    samples: int = 0
    loss_sum: float = 0.0
    correct1: int = 0
    correctk: int = 0

    def add(self, other: "Totals") -> None:
        self.samples += other.samples
        self.loss_sum += other.loss_sum
        self.correct1 += other.correct1
        self.correctk += other.correctk

    @property
    def loss(self) -> float:
        return self.loss_sum / max(1, self.samples)

    @property
    def top1(self) -> float:
        return self.correct1 / max(1, self.samples)

    @property
    def topk(self) -> float:
        return self.correctk / max(1, self.samples)

    def numbers(self) -> list[float]:
        """As a list, to be summed over workers; `of` reads it."""
        return [self.samples, self.loss_sum, self.correct1, self.correctk]

    @classmethod
    def of(cls, numbers: list[float]) -> "Totals":
        samples, loss_sum, correct1, correctk = numbers
        return cls(int(samples), loss_sum, int(correct1), int(correctk))

    def saved(self) -> dict[str, Any]:
        return asdict(self)
