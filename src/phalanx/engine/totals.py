"""Running sums of loss and correct predictions, which checkpoints save and restore exactly."""

from dataclasses import asdict, dataclass
from typing import Any

from phalanx.runs.score import F1_MICRO


@dataclass
class Totals:
    """Sums over samples; means are computed from them."""

    samples: int = 0
    loss_sum: float = 0.0
    correct1: int = 0
    correctk: int = 0
    label_hits: int = 0  # where a sample may have several: labels that were predicted, and are right
    label_marks: int = 0  # labels that were predicted, plus those that are there

    def add(self, other: "Totals") -> None:
        self.samples += other.samples
        self.loss_sum += other.loss_sum
        self.correct1 += other.correct1
        self.correctk += other.correctk
        self.label_hits += other.label_hits
        self.label_marks += other.label_marks

    @property
    def loss(self) -> float:
        return self.loss_sum / max(1, self.samples)

    @property
    def top1(self) -> float:
        return self.correct1 / max(1, self.samples)

    @property
    def topk(self) -> float:
        return self.correctk / max(1, self.samples)

    @property
    def f1(self) -> float:
        """Of all labels of all samples together."""
        return 2 * self.label_hits / max(1, self.label_marks)

    def means(self, multi_label: bool) -> dict[str, Any]:
        """Accuracies, or F1 where a sample may have several labels, as fields of an event."""
        if multi_label:
            return {"top1": None, "topk": None, "metrics": {F1_MICRO: self.f1}}
        return {"top1": self.top1, "topk": self.topk, "metrics": {}}

    def numbers(self) -> list[float]:
        """As a list, to be summed over workers; `of` reads it."""
        return [self.samples, self.loss_sum, self.correct1, self.correctk, self.label_hits, self.label_marks]

    @classmethod
    def of(cls, numbers: list[float]) -> "Totals":
        samples, loss_sum, *counts = numbers
        return cls(int(samples), loss_sum, *map(int, counts))

    def saved(self) -> dict[str, Any]:
        return asdict(self)
