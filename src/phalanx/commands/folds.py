"""The result of a cross-validation: each fold's best model on the part that it was not trained on, and all together."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np
from rich.console import Console

from phalanx.commands.evaluate import CLASS_TITLES, EvalResult, class_cells, evaluate_source
from phalanx.commands.loading import load_trained
from phalanx.custom import user_code
from phalanx.data.sources.open import open_data
from phalanx.engine.totals import Totals
from phalanx.observe.confusion import Answers
from phalanx.observe.confusion_picture import draw_confusion
from phalanx.observe.lines import accuracies, percent
from phalanx.observe.tables import print_rows, print_table, tab_separated
from phalanx.runs.evaluations import evaluations
from phalanx.runs.events import read_events
from phalanx.runs.fold_paths import FOLDS_FILE
from phalanx.runs.folder import write_run_file
from phalanx.runs.folds_file import write_folds
from phalanx.runs.rewind import last_start

TABLE, PREDICTIONS, PER_CLASS, CONFUSION = "folds.tsv", "predictions.tsv", "per_class.tsv", "confusion.png"


@dataclass(frozen=True)
class FoldResult:
    """A fold's best model: its answers to the samples of the fold, and to the data's own validation part."""

    number: int
    run: Path
    step: int
    epoch: float
    last_top1: float | None  # of the last evaluation in training, which no choice has favoured
    own: EvalResult
    names: list[str]  # of the samples
    test: EvalResult | None

    def numbers(self) -> dict[str, float]:
        """What was measured, by name; the user's own metrics too."""
        totals = self.own.numbers.totals
        found = {"top1": totals.top1, **({"topk": totals.topk} if self.own.k > 1 else {})}
        found |= {"loss": totals.loss, **self.own.numbers.metrics, "epoch": self.epoch}
        if self.last_top1 is not None:
            found["last_top1"] = self.last_top1
        if self.test is not None:
            found["test_top1"] = self.test.numbers.totals.top1
        return found


@user_code()
def measure_fold(console: Console, number: int, run: Path) -> FoldResult:
    """Evaluate the best model of a fold on the fold, and on the data's own validation part where there is one."""
    trained = load_trained(run, {"device": "auto"})
    splits = open_data(trained.config.data, threads=trained.threads)
    own = evaluate_source(trained, splits.val, trained.batch_size, console)
    start, known = last_start(run), evaluations(read_events(run))
    return FoldResult(
        number=number,
        run=run,
        step=trained.step,
        epoch=trained.step / start["steps_per_epoch"] if start else 0.0,
        last_top1=max(known, key=lambda one: one.step).top1 if known else None,
        own=own,
        names=[splits.val.name(index) for index in own.indices.tolist()],
        test=None if splits.test is None else evaluate_source(trained, splits.test, trained.batch_size, console),
    )


@dataclass(frozen=True)
class CrossResult:
    """All folds together."""

    folds: Sequence[FoldResult]

    @property
    def k(self) -> int:
        return self.folds[0].own.k

    @property
    def pooled(self) -> Totals:
        """Over all samples, each by the model that was not trained on it."""
        totals = Totals()
        for fold in self.folds:
            totals.add(fold.own.numbers.totals)
        return totals

    @property
    def answers(self) -> Answers:
        own = [fold.own.answers for fold in self.folds if fold.own.answers is not None]
        labels, answers = (np.concatenate([getattr(one, name) for one in own]) for name in ("labels", "answers"))
        return Answers(own[0].classes, labels, answers)

    def columns(self) -> dict[str, list[float]]:
        """The numbers of all folds by the name of their column."""
        rows = [fold.numbers() for fold in self.folds]
        return {name: [row[name] for row in rows] for name in rows[0] if all(name in row for row in rows)}

    def report(self) -> dict[str, Any]:
        """What folds.json has."""
        columns, pooled, answers = self.columns(), self.pooled, self.answers
        return {
            "finished": True,
            "folds": [
                {
                    "fold": fold.number,
                    "run": fold.run.name,
                    "step": fold.step,
                    "samples": fold.own.numbers.totals.samples,
                }
                | fold.numbers()
                for fold in self.folds
            ],
            "mean": {name: fmean(values) for name, values in columns.items()},
            "std": {name: stdev(values) for name, values in columns.items()},
            "pooled": {
                "samples": pooled.samples,
                "top1": pooled.top1,
                "topk": pooled.topk,
                "k": self.k,
                "loss": pooled.loss,
                "classes": [{**asdict(one), "top1": one.top1} for one in answers.by_class()],
                "confusions": [
                    {"class": answers.classes[one.label], "answer": answers.classes[one.answer], "times": one.times}
                    for one in answers.confusions()
                ],
            },
        }

    def table(self) -> Iterator[list[str]]:
        """Titles, a row for each fold, and the mean with its standard deviation."""
        columns = self.columns()
        titles = {"top1": "top-1", "topk": f"top-{self.k}", "last_top1": "last top-1", "test_top1": "test top-1"}
        yield ["fold", *(titles.get(name, name) for name in columns), "images"]
        for fold in self.folds:
            numbers = fold.numbers()
            yield [
                str(fold.number),
                *(_shown(name, numbers[name]) for name in columns),
                f"{fold.own.numbers.totals.samples:,}",
            ]
        spread = [f"{_shown(name, fmean(values))} ± {_shown(name, stdev(values))}" for name, values in columns.items()]
        yield ["mean", *spread, f"{self.pooled.samples:,}"]


def _shown(name: str, value: float) -> str:
    if name in ("top1", "topk", "last_top1", "test_top1"):
        return percent(value)
    return f"{value:.2f}" if name == "epoch" else f"{value:.4f}" if name == "loss" else f"{value:.5g}"


def write_result(folder: Path, result: CrossResult, about: dict[str, Any]) -> None:
    """Write folds.json, folds.tsv, predictions.tsv, per_class.tsv and confusion.png."""
    answers, pooled = result.answers, result.pooled
    write_folds(folder, {**about, **result.report()})
    write_run_file(folder / TABLE, "".join(tab_separated(row) + "\n" for row in result.table()))
    rows = [CLASS_TITLES, *map(class_cells, answers.by_class())]
    write_run_file(folder / PER_CLASS, "".join(tab_separated(row) + "\n" for row in rows))
    write_run_file(folder / PREDICTIONS, "".join(tab_separated(row) + "\n" for row in _predictions(result)))
    title = f"{folder.resolve().name}, {len(result.folds)} folds: top-1 {percent(pooled.top1)}"
    draw_confusion(answers, f"{title} of {pooled.samples:,} images", folder / CONFUSION)


def _predictions(result: CrossResult) -> Iterator[tuple[str, ...]]:
    """Every sample with the answer of the model that was not trained on it."""
    yield ("sample", "fold", "class", "prediction")
    for fold in result.folds:
        answers = fold.own.answers
        assert answers is not None  # several labels a sample are refused before the first fold
        for name, label, answer in zip(fold.names, answers.labels.tolist(), answers.answers.tolist(), strict=True):
            yield (name, str(fold.number), answers.classes[label], answers.classes[answer])


def print_result(console: Console, folder: Path, result: CrossResult) -> None:
    """Print the table, and what all folds together give."""
    titles, *rows = result.table()
    print_table(console, titles, rows, numbers=titles)
    pooled = result.pooled
    measured = accuracies(pooled.top1, pooled.topk, result.k, between=", ")
    print_rows(
        console,
        {
            "all folds": f"{measured}, loss {pooled.loss:.4f} on {pooled.samples:,} images, "
            "each by the model that was not trained on it",
            "folder": f"{folder}: {', '.join((FOLDS_FILE, TABLE, PREDICTIONS, PER_CLASS, CONFUSION))}, fold-*/",
            "next": f"phalanx plot {folder}/fold-*   phalanx predict {folder}/fold-1 IMAGE…",
        },
        bold=("all folds",),
    )
