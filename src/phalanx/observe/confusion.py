"""The confusion matrix: exact counts from the label and the prediction of each sample."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class ClassResult:
    """The result of one class. `confused_with` is its most frequent wrong prediction, `times` how often."""

    name: str
    samples: int
    correct: int
    confused_with: str | None
    times: int

    @property
    def top1(self) -> float | None:
        """None if the data has no sample of the class."""
        return self.correct / self.samples if self.samples else None


@dataclass(frozen=True)
class Confusion:
    """`times` samples of class number `label` were predicted as class number `answer`, a wrong one."""

    label: int
    answer: int
    times: int


@dataclass(frozen=True)
class Answers:
    """The label and the top-1 prediction of each sample, as class numbers."""

    classes: list[str]
    labels: Numbers
    answers: Numbers

    def confusions(self) -> list[Confusion]:
        """Wrong predictions, the most frequent first; ties in the order of the classes."""
        wrong = self.labels != self.answers
        pairs, times = np.unique(
            np.stack([self.labels[wrong], self.answers[wrong]], axis=1), axis=0, return_counts=True
        )
        found = [Confusion(label, answer, n) for (label, answer), n in zip(pairs.tolist(), times.tolist(), strict=True)]
        return sorted(found, key=lambda confusion: -confusion.times)

    def by_class(self) -> list[ClassResult]:
        """The result of every class, in order."""
        count = len(self.classes)
        samples = np.bincount(self.labels, minlength=count).tolist()
        correct = np.bincount(self.labels[self.labels == self.answers], minlength=count).tolist()
        worst: dict[int, Confusion] = {}
        for confusion in self.confusions():
            worst.setdefault(confusion.label, confusion)
        return [
            ClassResult(
                name,
                samples[number],
                correct[number],
                self.classes[worst[number].answer] if number in worst else None,
                worst[number].times if number in worst else 0,
            )
            for number, name in enumerate(self.classes)
        ]

    def matrix(self, group: int = 1) -> Numbers:
        """Counts by (label, prediction), with `group` neighbouring classes per cell."""
        size = -(-len(self.classes) // group)
        counts = np.zeros((size, size), dtype=np.int64)
        np.add.at(counts, (self.labels // group, self.answers // group), 1)
        return counts
