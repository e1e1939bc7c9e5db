"""Results of samples with several labels: average precision, precision, recall and F1 of each class, and over all."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from phalanx.runs.score import F1_MACRO, F1_MICRO, MAP

Numbers = npt.NDArray[np.int64]
Logits = npt.NDArray[np.float32]


@dataclass(frozen=True)
class LabelResult:
    """The result of one class. A sample is predicted to have it where its probability is above 1/2."""

    name: str
    positives: int  # samples that have it
    predicted: int
    correct: int  # predicted, and right
    average_precision: float | None  # None where no sample has it

    @property
    def precision(self) -> float | None:
        """The share of the predicted that are right; None where nothing is predicted."""
        return self.correct / self.predicted if self.predicted else None

    @property
    def recall(self) -> float | None:
        """The share of the positives that are predicted; None where there are none."""
        return self.correct / self.positives if self.positives else None

    @property
    def f1(self) -> float | None:
        """The harmonic mean of both; None where no sample has the class."""
        return 2 * self.correct / (self.predicted + self.positives) if self.positives else None


@dataclass(frozen=True)
class LabelResults:
    """The results of all classes, in order. Means are over the classes that some sample has."""

    classes: list[LabelResult]

    def numbers(self) -> dict[str, float]:
        """The numbers of an evaluation, by name. Without any positive they are not defined."""
        marks = sum(one.predicted + one.positives for one in self.classes)
        hits = sum(one.correct for one in self.classes)
        return {
            MAP: _mean([one.average_precision for one in self.classes]),
            F1_MICRO: 2 * hits / marks if marks else float("nan"),
            F1_MACRO: _mean([one.f1 for one in self.classes]),
        }


def label_results(classes: Sequence[str], labels: Numbers, logits: Logits) -> LabelResults:
    """The results of samples with these labels (n, classes), zeros and ones, and these logits."""
    return LabelResults(
        [_result(name, labels[:, number] > 0, logits[:, number]) for number, name in enumerate(classes)]
    )


def _result(name: str, labels: npt.NDArray[np.bool_], logits: Logits) -> LabelResult:
    predicted = logits > 0  # a probability above 1/2
    counts = int(labels.sum()), int(predicted.sum()), int((labels & predicted).sum())
    return LabelResult(name, *counts, average_precision(labels, logits) if counts[0] else None)


def average_precision(labels: npt.NDArray[np.bool_], scores: npt.NDArray[np.floating]) -> float:
    """The area under the steps of precision over recall, as scikit-learn's average_precision_score computes it.

    Samples with the same score are taken together: their order among one another is unknown. A score that is not a
    number is the lowest.
    """
    scores = np.where(np.isnan(scores), -np.inf, scores)
    order = np.argsort(-scores, kind="stable")
    ranked = scores[order]
    hits = np.cumsum(labels[order])
    last_of_equals = np.append(ranked[1:] != ranked[:-1], True)
    places = np.flatnonzero(last_of_equals)
    found = hits[places]
    precision, recall = found / (places + 1), found / hits[-1]
    return float(np.sum(np.diff(recall, prepend=0.0) * precision))


def _mean(values: Sequence[float | None]) -> float:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else float("nan")
