"""What a run measured: its best and its last evaluation, and evaluations on other data."""

from dataclasses import dataclass, field
from pathlib import Path

from phalanx.observe.confusion import ClassResult


@dataclass(frozen=True)
class Score:
    """An evaluation during training. Accuracies are in 0..1; `topk` counts the k most probable classes.

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
    metrics: dict[str, float] = field(default_factory=dict)  # of your own, by name


@dataclass(frozen=True)
class Evaluation:
    """An evaluation of a trained model. `folder` has eval.json, per_class.tsv and confusion.png.

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
    metrics: dict[str, float] = field(default_factory=dict)  # of your own, by name
