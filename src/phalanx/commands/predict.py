"""`phalanx predict`: the most probable classes of images; of several labels, all that are probable enough."""

import json
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.text import Text

from phalanx.commands.data_settings import print_notes
from phalanx.commands.loading import Trained, load_trained
from phalanx.commands.predict_inputs import Split, find_inputs, open_inputs, true_label
from phalanx.config.resolve import parse_override
from phalanx.custom import user_code
from phalanx.data.augment.framing import still_framing
from phalanx.data.base import Batch
from phalanx.data.pipeline import evaluation_batches
from phalanx.data.sources.bad_images import BadImages
from phalanx.data.sources.labelled import Labelled
from phalanx.errors import EXIT_USER, UserError
from phalanx.observe.lines import percent
from phalanx.observe.tables import print_line, print_table, tab_separated

TOP_K = 5  # classes that are shown of an image that has one label
THRESHOLD = 0.5  # the probability above which an image has a label, where it may have several

Answer = tuple[list[tuple[str, float]], list[str]]  # classes with their probabilities, and labels
NO_ANSWER: Answer = ([], [])


@dataclass(frozen=True)
class Prediction:
    """The most probable classes of an image with their probabilities, or why it was not readable.

    >>> import numpy
    >>> run = phalanx.load("runs/digits")
    >>> [prediction] = run.predict([numpy.zeros((8, 8))])
    >>> prediction.label in run.classes, 0 <= prediction.probability <= 1
    (True, True)
    """

    image: str
    classes: list[tuple[str, float]]
    labels: list[str]  # all that are probable enough where an image may have several; otherwise the most probable
    error: str | None = None
    true_label: str | None = None  # of a sample of data that has labels

    @property
    def label(self) -> str:
        """The most probable class. An Error for an image that was not readable."""
        return self._best[0]

    @property
    def probability(self) -> float:
        """The probability of `label`."""
        return self._best[1]

    @property
    def _best(self) -> tuple[str, float]:
        if self.error is not None:
            raise UserError(
                f"{self.image} could not be read", why=self.error, remedy="give an image file that is whole"
            )
        return self.classes[0]


@user_code()
def predict_images(
    console: Console,
    place: Path,
    words: Sequence[str],
    top_k: int | None,
    style: str,
    device: str,
    threshold: float | None = None,
    *,
    split: Split = "all",
    labels: bool = False,
) -> int:
    """Print the classes of each image. Returns the exit code: 0 if every image was readable.

    Words are images and data; those that begin with `data.` are settings. With `labels`, true ones are printed too.
    Without `top_k`, an image that may have several labels shows all that are above the threshold.
    """
    settings = [word for word in words if word.startswith("data.") and "=" in word and not Path(word).exists()]
    inputs = find_inputs([word for word in words if word not in settings])
    trained = load_for_prediction(place, device)
    several = trained.spec.multi_label
    if threshold is not None and not several:
        raise UserError(
            f"--threshold {threshold:g} has no effect on this model",
            why="its images have one label each: the most probable class",
            remedy="leave it out, or choose how many classes are shown with --top-k",
        )
    above = THRESHOLD if threshold is None else threshold
    failed = total = 0
    aside = Console(stderr=True)
    for source in open_inputs(inputs, trained, split, [parse_override(word) for word in settings]):
        print_notes(aside, source.notes)
        for predictions in predict(trained, source, top_k, above):
            _print(console, predictions, style, first=not total, labels=labels, several=several)
            failed += sum(prediction.error is not None for prediction in predictions)
            total += len(predictions)
    if not failed:
        return 0
    aside.print(Text(f"{failed} of {total} images could not be read"))
    return EXIT_USER


def load_for_prediction(place: Path, device: str) -> Trained:
    """The model, not compiled: a minute of compiling would only delay the answer."""
    return load_trained(place, {"device": device, "compile": False})


def predict(
    trained: Trained, source: Labelled, top_k: int | None, threshold: float = THRESHOLD
) -> Iterator[list[Prediction]]:
    """Batch by batch, while threads decode the next ones: images prepared as in validation.

    Where an image may have several labels, it has those with a probability above `threshold`, and without `top_k`
    these are its classes.
    """
    spec = trained.spec
    batches = evaluation_batches(
        source,
        still_framing(trained.config.data, spec.image_size, spec.margin),
        min(trained.batch_size, len(source)),
        bad=BadImages(source, cap=1.0),
    )
    with closing(batches):
        for batch in batches:
            answers, reasons = _answers(trained, batch, top_k, threshold), dict(batch.bad)
            numbered = ((index, source.name(index)) for index in range(batch.start, batch.start + batch.total))
            yield [
                Prediction(name, *answers.get(index, NO_ANSWER), reasons.get(name), true_label(source, index))
                for index, name in numbered
            ]


def _answers(trained: Trained, batch: Batch, top_k: int | None, threshold: float) -> dict[int, Answer]:
    """The classes and labels of the readable images of a batch, by index."""
    answers = {}
    names, several = trained.spec.classes, trained.spec.multi_label
    for micro in batch.micro:
        if not micro.count:
            continue
        logits = trained.logits(micro.images)
        # In float64 a probability is above 1/2 exactly where the logit is positive, as evaluation counts it.
        shares = logits.double().sigmoid() if several else logits.softmax(dim=1)
        above = (shares > threshold).sum(dim=1).tolist() if several else [1] * micro.count
        most = max([*above, TOP_K if top_k is None else top_k])
        top = shares.topk(min(most, len(names)), dim=1)
        rows = zip(micro.indices.tolist(), top.indices.tolist(), top.values.tolist(), above, strict=True)
        for index, numbers, values, count in rows:
            ranked = [(names[number], value) for number, value in zip(numbers, values, strict=True)]
            shown = top_k if top_k is not None else count if several else TOP_K
            answers[index] = ranked[:shown], [name for name, _ in ranked[:count]]
    return answers


def _print(
    console: Console, predictions: list[Prediction], style: str, *, first: bool, labels: bool, several: bool
) -> None:
    true = ("true_label",) * labels
    if style == "json":
        for prediction in predictions:
            print_line(console, json.dumps(_as_json(prediction, several=several)))
    elif style == "table" and console.is_terminal:
        rows = [row for prediction in predictions for row in _rows(prediction, labels)]
        print_table(console, ("image", "class", "probability", *true), rows, numbers=("probability",))
    else:
        lines = [("image", "rank", "class", "probability", *true)] if first else []
        lines += [line for prediction in predictions for line in _lines(prediction, labels)]
        for line in lines:
            print_line(console, tab_separated(line))
    console.file.flush()


def _as_json(prediction: Prediction, *, several: bool) -> dict[str, object]:
    true = {} if prediction.true_label is None else {"true_label": prediction.true_label}
    if prediction.error is not None:
        return {"image": prediction.image, "error": prediction.error, **true}
    shown = [{"class": name, "probability": value} for name, value in prediction.classes]
    labels = {"labels": prediction.labels} if several else {}
    return {"image": prediction.image, "predictions": shown, **labels, **true}


def _rows(prediction: Prediction, labels: bool) -> list[tuple[str, ...]]:
    """Rows for people: the image is named once."""
    true = (prediction.true_label or "",) * labels
    if prediction.error is not None:
        return [(prediction.image, f"not readable: {prediction.error}", "", *true)]
    if not prediction.classes:
        return [(prediction.image, "no label is probable enough", "", *true)]
    first, *others = ((name, percent(value)) for name, value in prediction.classes)
    return [(prediction.image, *first, *true), *(("", *other, *("",) * labels) for other in others)]


def _lines(prediction: Prediction, labels: bool) -> list[tuple[str, ...]]:
    """Rows for programs: complete lines. An unreadable image has the rank `error`, one without labels `none`."""
    true = (prediction.true_label or "",) * labels
    if prediction.error is not None:
        return [(prediction.image, "error", prediction.error, "", *true)]
    if not prediction.classes:
        return [(prediction.image, "none", "", "", *true)]
    ranked = enumerate(prediction.classes, 1)
    return [(prediction.image, str(rank), name, f"{value:.6f}", *true) for rank, (name, value) in ranked]
