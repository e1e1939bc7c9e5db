"""What a run measured: its best and its last evaluation, and evaluations on other data."""

from dataclasses import dataclass, field
from pathlib import Path

from phalanx.observe.confusion import ClassResult
from phalanx.observe.label_results import LabelResult
from phalanx.runs.score import MAP


@dataclass(frozen=True)
class Score:
    """An evaluation during training. Accuracies are in 0..1; `topk` counts the k most probable classes.

    Where a sample may have several labels, `mAP` is measured instead, and `top1` and `topk` are nan.

    >>> run = phalanx.load("runs/digits")
    >>> run.best.step <= run.last.step, 0 <= run.best.top1 <= run.best.topk <= 1
    (True, True)
    """

    step: int
    epoch: float
    top1: float
    topk: float
    k: int
    loss: float
    metrics: dict[str, float] = field(default_factory=dict)  # by name: your own; mAP and F1 of several labels

    @property
    def mAP(self) -> float:
        """The mean over classes of the average precision; nan where a sample has one label."""
        return self.metrics.get(MAP, float("nan"))


@dataclass(frozen=True)
class Evaluation:
    """An evaluation of a trained model. `folder` has eval.json, per_class.tsv and confusion.png.

    Where a sample may have several labels, `mAP` is measured instead of `top1` and `topk`, which are nan; `labels` has
    the results of each class instead of `classes`, and `folder` has average_precision.png.

    >>> evaluation = phalanx.load("runs/digits").evaluate()
    >>> evaluation.samples
    355
    >>> [one.name for one in evaluation.classes][:3]
    ['0', '1', '2']
    """

    top1: float
    topk: float
    k: int
    loss: float
    samples: int
    data: str
    classes: list[ClassResult] = field(repr=False)
    unreadable: list[tuple[str, str]] = field(repr=False)  # (image, reason)
    folder: Path
    metrics: dict[str, float] = field(default_factory=dict)  # by name: your own; mAP and F1 of several labels
    labels: list[LabelResult] = field(default_factory=list, repr=False)

    @property
    def mAP(self) -> float:
        """The mean over classes of the average precision; nan where a sample has one label."""
        return self.metrics.get(MAP, float("nan"))
