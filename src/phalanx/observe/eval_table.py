"""Evaluations as rows of a table, printed one by one: training and validation, each with loss and accuracies."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.text import Text

from phalanx.observe.lines import accuracies, percent
from phalanx.runs import events as ev
from phalanx.runs.score import F1_MICRO

_EPOCH, _STEP, _LOSS, _SCORE = 6, 8, 10, 9  # columns: with two accuracies each and the mark of the best, below 80
_WHOLE = 77


@dataclass(frozen=True)
class TrainingScores:
    """Loss and accuracies of training at the time of an evaluation."""

    loss: float
    top1: float  # F1 where a sample may have several labels
    topk: float | None = None


class EvalTable:
    """Gives the lines of a table as results come. Without `has_training`, or in a narrow terminal, validation alone."""

    def __init__(self, *, has_training: bool = True) -> None:
        self._has_training = has_training
        self._titles = ""  # that were printed last

    def rows(self, event: ev.Eval, training: TrainingScores | None, columns: int) -> Iterator[Text]:
        """The row of an evaluation, after titles if it is the first, or the terminal's columns have changed much."""
        several = event.k > 1 and event.topk is not None
        names = ["mAP", "F1"] if event.top1 is None else ["top-1", *([f"top-{event.k}"] if several else [])]
        own = names[1:] if event.top1 is None else names  # training has no mAP
        if not self._has_training or columns < _WHOLE:
            own = []
        above = " " * (_EPOCH + _STEP) + (_centred("training", own) if own else "") + _centred("validation", names)
        titles = "epoch".rjust(_EPOCH) + "step".rjust(_STEP) + (_titles(own) if own else "") + _titles(names)
        if titles != self._titles:
            self._titles = titles
            yield Text(above.rstrip(), style="dim")
            yield Text(titles, style="dim")
        row = f"{event.epoch:.4g}".rjust(_EPOCH) + f"{event.step:,}".rjust(_STEP)
        row += _trained(training, own) if own else ""
        row += f"{event.loss:.4f}".rjust(_LOSS) + _cells(_found(event))
        yield Text(f"{row}  best" if event.best else row, style="bold" if event.best else "")


def _trained(training: TrainingScores | None, own: Sequence[str]) -> str:
    if training is None:
        return "-".rjust(_LOSS) + _cells(["-"] * len(own))
    known = [training.top1, training.topk]
    cells = ["-" if value is None else percent(value) for value in known[: len(own)]]
    return f"{training.loss:.4f}".rjust(_LOSS) + _cells(cells)


def _found(event: ev.Eval) -> list[str]:
    if event.top1 is None:
        mean = accuracies(None, None, 1, metrics=event.metrics).removeprefix("mAP ")
        return [mean, percent(event.metrics.get(F1_MICRO, 0.0))]
    return [percent(event.top1), *([percent(event.topk)] if event.k > 1 and event.topk is not None else [])]


def _centred(title: str, names: Sequence[str]) -> str:
    return "  " + title.center(_LOSS + _SCORE * len(names) - 2)


def _titles(names: Sequence[str]) -> str:
    return "loss".rjust(_LOSS) + _cells(names)


def _cells(cells: Sequence[str]) -> str:
    return "".join(cell.rjust(_SCORE) for cell in cells)
