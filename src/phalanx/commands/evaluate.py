"""`phalanx eval`: exact accuracy of a trained model, class by class, with a confusion matrix; mAP of several labels."""

import json
import re
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.text import Text
from torch import Tensor

from phalanx.commands.evaluate_labels import FILES as LABEL_FILES
from phalanx.commands.evaluate_labels import draw_labels, label_fields, print_labels, write_label_table
from phalanx.commands.loading import Trained, load_trained
from phalanx.commands.mistakes import write_mistakes
from phalanx.commands.other_data import other_data
from phalanx.config.resolve import Layer
from phalanx.config.schema import DataConfig
from phalanx.custom import user_code
from phalanx.data.augment.framing import still_framing
from phalanx.data.base import Batch, Source
from phalanx.data.order import Indices, Share
from phalanx.data.pipeline import evaluation_batches
from phalanx.data.sources.bad_images import BadImages
from phalanx.data.sources.holdout import with_classes
from phalanx.data.sources.multi_label import judged_classes
from phalanx.data.sources.open import open_data, open_split
from phalanx.engine.inputs import Inputs
from phalanx.engine.loss import plain_loss
from phalanx.engine.measure import Measured as Numbers
from phalanx.engine.measure import measure as measure_model
from phalanx.engine.metrics import begin_metrics
from phalanx.engine.objective import Supervised
from phalanx.engine.step import Engine
from phalanx.engine.views import views_of
from phalanx.errors import UserError
from phalanx.exchange.local import SingleWorker
from phalanx.observe.confusion import Answers, ClassResult
from phalanx.observe.confusion_picture import draw_confusion
from phalanx.observe.label_results import LabelResult
from phalanx.observe.lines import accuracies, percent
from phalanx.observe.progress import progress
from phalanx.observe.tables import print_rows, print_table, print_text, tab_separated
from phalanx.runs.folder import versions, write_run_file
from phalanx.runs.score import MAP

MOST_SHOWN = 30  # classes; of more, the worst
CONFUSIONS_SHOWN = 10  # pairs of classes; with fewer classes than that, the table of classes says it all
_FILES = ("eval.json", "per_class.tsv", "confusion.png", "confusion-classes.tsv", "mistakes.json")
_CONFUSION_TITLES = ("times", "of", "true class", "answer")
CLASS_TITLES = ("class", "samples", "correct", "top-1", "most confused with")


@dataclass(frozen=True)
class EvalResult:
    """The evaluation of a model on some data."""

    data: str
    k: int
    numbers: Numbers
    answers: Answers | None  # None where a sample may have several labels
    indices: Indices  # of the samples, in the order of the answers
    bad_images: list[tuple[str, str]]
    seconds: float
    sure: npt.NDArray[np.float32] | None = None  # the answers' probabilities, in the order of the answers
    own: npt.NDArray[np.float32] | None = None  # the true classes' probabilities


@dataclass(frozen=True)
class Measured:
    """An evaluation, the model it is of, and the folder with eval.json, per_class.tsv and a figure."""

    trained: Trained
    result: EvalResult
    classes: list[ClassResult]  # empty where a sample may have several labels
    labels: list[LabelResult]  # and empty otherwise
    folder: Path


def evaluate_checkpoint(
    console: Console,
    place: Path,
    data: str | None,
    batch_size: int | None,
    device: str,
    precision: str | None,
    out: Path | None,
    settings: Sequence[Layer] = (),
) -> None:
    """Measure on the run's own validation data or on `data`, write the files, and print the result."""
    measured = measure(console, place, data, batch_size, device, precision, out, settings)
    _print(console, measured)
    if data is None:
        _compare(console, measured.trained, measured.result)


@user_code()
def measure(
    console: Console,
    place: Path,
    data: str | None,
    batch_size: int | None,
    device: str,
    precision: str | None,
    out: Path | None,
    settings: Sequence[Layer] = (),
) -> Measured:
    """Measure on the run's own validation data or on `data`, and write eval.json, per_class.tsv and a PNG.

    The console shows notes and progress. `settings` tell how to read `data`.
    """
    trained, source, bad = open_both(console, place, data, device, precision, settings)
    folder = made_folder(trained, "eval", data, out)
    result = evaluate_source(trained, source, batch_size or trained.batch_size, console, bad)
    classes = result.answers.by_class() if result.answers is not None else []
    labels = result.numbers.labels.classes if result.numbers.labels is not None else []
    measured = Measured(trained, result, classes, labels, folder)
    _write(measured)
    if result.answers is not None and result.sure is not None and result.own is not None:
        framing = still_framing(trained.config.data, trained.spec.image_size, trained.spec.margin)
        write_mistakes(folder, source, framing, result.answers, result.indices, result.sure, result.own)
    return measured


def open_both(
    console: Console,
    place: Path,
    data: str | None,
    device: str,
    precision: str | None,
    settings: Sequence[Layer],
) -> tuple[Trained, Source, BadImages]:
    """The model, and what it is to be measured on: its own validation data, or `data` as `settings` tell to read it."""
    _refuse_settings_alone(data, settings)
    trained = load_trained(place, {"device": device} | ({"precision": precision} if precision else {}))
    config = trained.config.data if data is None else other_data(trained, data, settings)
    source = _validation(trained, console) if data is None else _other(trained, data, config, console)
    return trained, source, BadImages.of(config, source)


def made_folder(trained: Trained, name: str, data: str | None, out: Path | None) -> Path:
    """Where results go: `out`, or a folder of that name in the run's."""
    return _made(out or trained.home / (name if data is None else f"{name}-{_short_name(data)}"))


def _validation(trained: Trained, console: Console) -> Source:
    try:
        splits = open_data(trained.config.data, threads=trained.threads)
    except UserError as error:  # the run may have moved, or started in another folder
        raise UserError(error.what, why=error.why, remedy=f"{error.remedy}; or name the data: --data PATH") from error
    _refuse_other_labels(trained, splits.val)
    _note(console, splits.notes)
    try:
        val, matched = with_classes(splits.val, trained.spec.classes, trained.config.data.source)
    except UserError as error:
        raise UserError(
            f"{trained.config.data.source} has other classes than the model",
            why=f"the data has changed since the model was trained on it: {error.what}",
            remedy="name data with the model's classes: --data PATH",
        ) from error
    _note(console, matched)
    return val


def _refuse_settings_alone(data: str | None, settings: Sequence[Layer]) -> None:
    if data is None and settings:
        raise UserError(
            f"{settings[0].origin} has no effect here",
            why="the run's own data is read with the run's settings",
            remedy="leave it out, or name other data with --data",
        )


def _refuse_other_labels(trained: Trained, source: Source) -> None:
    if (source.labels.ndim == 2) != trained.spec.multi_label:
        raise UserError(
            f"the model has {'several labels' if trained.spec.multi_label else 'one label'} a sample",
            why="data.multi_label is another one than when the model was trained",
            remedy=f"data.multi_label={str(trained.spec.multi_label).lower()}",
        )


def _other(trained: Trained, data: str, config: DataConfig, console: Console) -> Source:
    source = open_split(data, config, trained.spec.classes, threads=trained.threads)
    _refuse_other_labels(trained, source)
    _note(console, [*source.notes, *(judged_classes(source, data) if trained.spec.multi_label else [])])
    return source


def _note(console: Console, notes: tuple[str, ...] | list[str]) -> None:
    for note in notes:
        print_text(console, f"note: {note}")


def evaluate_source(
    trained: Trained, source: Source, batch_size: int, console: Console, bad_images: BadImages | None = None
) -> EvalResult:
    """Evaluate a model on a split, in the order of its samples."""
    config, spec = trained.config, trained.spec
    k = spec.k(config.eval)
    inputs = Inputs(trained.settings, config.augment, spec.mean, spec.std, config.train.seed)
    engine = Engine(
        trained.settings,
        inputs,
        Supervised(plain_loss),
        k,
        config.train.seed,
        views_of(config.eval),
    )
    batches = evaluation_batches(
        source,
        still_framing(config.data, spec.image_size, spec.margin),
        batch_size,
        prefetch=config.data.prefetch,
        bad=bad_images or BadImages.of(config.data, source),
        pin=trained.settings.gpu is not None,
    )
    labels, answers, indices, bad = [np.empty(0, np.int64)], [np.empty(0, np.int64)], [np.empty(0, np.int64)], []
    sure, own_share = [np.empty(0, np.float32)], [np.empty(0, np.float32)]
    begin = time.perf_counter()
    with progress(console, "evaluated", len(source)) as advance:

        def watch(batch: Batch, logits: Tensor) -> None:
            if not spec.multi_label:
                labels.extend(micro.labels.numpy() for micro in batch.micro)
                # The same call as for the accuracy, so that ties are ranked alike.
                answers.append(logits.topk(k, dim=1).indices[:, 0].cpu().numpy())
                shares = logits.float().softmax(dim=1).cpu().numpy()
                rows = np.arange(len(shares))
                sure.append(shares[rows, answers[-1]])
                own_share.append(shares[rows, np.concatenate([micro.labels.numpy() for micro in batch.micro])])
            indices.extend(micro.indices.numpy() for micro in batch.micro)
            bad.extend(batch.bad)
            advance(batch.total)

        own = begin_metrics(config.eval.metrics, spec.classes, multi_label=spec.multi_label)
        numbers = measure_model(trained.model, batches, engine, source, own, SingleWorker(Share()), watch=watch)
    found = None if spec.multi_label else Answers(spec.classes, np.concatenate(labels), np.concatenate(answers))
    used, seconds = np.concatenate(indices), time.perf_counter() - begin
    probabilities = np.concatenate(sure), np.concatenate(own_share)
    return EvalResult(source.description, k, numbers, found, used, bad, seconds, *probabilities)


def _short_name(data: str) -> str:
    """`folder:/data/pets/val` → `val`: a short name for the folder."""
    name = Path(data.rpartition(":")[2]).expanduser().resolve().name
    return re.sub(r"[^\w.-]+", "-", name) or "data"


def _made(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"cannot create the folder {folder}",
            why=error.strerror or str(error),
            remedy="choose another folder with --out",
        ) from error
    return folder


def _write(measured: Measured) -> None:
    trained, result, folder = measured.trained, measured.result, measured.folder
    numbers, totals = result.numbers, result.numbers.totals
    report = {
        "checkpoint": str(trained.path),
        "step": trained.step,
        "model": trained.spec.model,
        "data": result.data,
        "samples": totals.samples,
        "top1": numbers.top1,
        "topk": numbers.topk,
        "k": result.k,
        "loss": totals.loss,
        "metric": numbers.metric,
        "metrics": numbers.metrics,
        "seconds": result.seconds,
        "decisions": {name: str(decision) for name, decision in trained.settings.decisions.items()},
        "bad_images": [{"image": name, "reason": reason} for name, reason in result.bad_images],
        "classes": [*map(_fields, measured.classes), *map(label_fields, measured.labels)],
        "confusions": _confusions(result.answers),
        "versions": versions(),
    }
    write_run_file(folder / "eval.json", json.dumps(report, indent=1, ensure_ascii=False) + "\n")
    title = f"{trained.home.resolve().name}, step {trained.step:,}: {_headline(numbers)} of {totals.samples:,} images"
    if result.answers is None:
        write_label_table(folder, measured.labels)
        draw_labels(folder, measured.labels, totals.samples, title)
        return
    lines = [CLASS_TITLES, *map(class_cells, measured.classes)]
    write_run_file(folder / "per_class.tsv", "".join(tab_separated(cells) + "\n" for cells in lines))
    draw_confusion(result.answers, title, folder / "confusion.png")


def _headline(numbers: Numbers) -> str:
    return accuracies(numbers.top1, None, 1, metrics=numbers.metrics)


def _fields(one: ClassResult) -> dict[str, Any]:
    return {**asdict(one), "top1": one.top1}


def _confusions(answers: Answers | None) -> list[dict[str, Any]]:
    found = answers.confusions() if answers is not None else []
    names = answers.classes if answers is not None else []
    return [{"class": names[one.label], "answer": names[one.answer], "times": one.times} for one in found]


def class_cells(one: ClassResult) -> tuple[str, ...]:
    top1 = percent(one.top1) if one.top1 is not None else "-"
    return (
        one.name,
        str(one.samples),
        str(one.correct),
        top1,
        f"{one.confused_with} ({one.times})" if one.times else "-",
    )


def _print(console: Console, measured: Measured) -> None:
    trained, result, numbers = measured.trained, measured.result, measured.result.numbers
    if numbers.multi_label:
        print_labels(console, measured.labels, MOST_SHOWN)
    else:
        _print_classes(console, measured.classes)
        if result.answers is not None:
            print_confusions(console, result.answers)
    for name, reason in result.bad_images:
        print_text(console, f"left out, not readable: {name}: {reason}")
    totals, decisions = numbers.totals, trained.settings.decisions
    name, _, value = _headline(numbers).partition(" ")
    files = LABEL_FILES if numbers.multi_label else _FILES
    rows = {
        "model": f"{trained.spec.model}, {trained.path}",
        "data": f"{result.data}: {totals.samples:,} images in {result.seconds:.1f} s",
        "device": f"{decisions['device']}, {decisions['precision']}",
        name: value,
        **({f"top-{result.k}": percent(totals.topk)} if result.k > 1 and not numbers.multi_label else {}),
        "loss": f"{totals.loss:.4f}",
        **{name: f"{value:.5g}" for name, value in numbers.metrics.items() if name != MAP},
        "folder": f"{measured.folder}: {', '.join(name for name in files if (measured.folder / name).exists())}",
    }
    print_rows(console, rows)


def print_confusions(console: Console, answers: Answers) -> None:
    """The most frequent confusions of many classes, which nobody finds among hundreds of rows."""
    all_found = answers.confusions()
    found = all_found[:CONFUSIONS_SHOWN]
    if not found or len(answers.classes) <= CONFUSIONS_SHOWN:
        return
    others = f"; the other {len(all_found) - len(found):,} are in eval.json" if len(all_found) > len(found) else ""
    samples = np.bincount(answers.labels, minlength=len(answers.classes))
    console.print(Text(f"the {len(found)} most frequent confusions{others}:"))
    rows = (
        (str(one.times), str(samples[one.label]), answers.classes[one.label], answers.classes[one.answer])
        for one in found
    )
    print_table(console, _CONFUSION_TITLES, rows, numbers=_CONFUSION_TITLES[:2])


def _print_classes(console: Console, classes: list[ClassResult]) -> None:
    shown = classes
    if len(classes) > MOST_SHOWN:
        shown = sorted((one for one in classes if one.samples), key=lambda one: one.correct / one.samples)[:MOST_SHOWN]
        console.print(Text(f"the {len(shown)} worst of {len(classes):,} classes, the others in per_class.tsv:"))
    print_table(console, CLASS_TITLES, map(class_cells, shown), numbers=CLASS_TITLES[1:4])


def _compare(console: Console, trained: Trained, result: EvalResult) -> None:
    """Print a note if training measured another accuracy with these weights on this data."""
    judged = trained.judged
    if judged is None or judged.score == result.numbers.score:
        return
    before = percent(judged.score)
    text = f"training measured {before}: its precision, device, threads or data were different"
    print_text(console, f"note: {text}")
