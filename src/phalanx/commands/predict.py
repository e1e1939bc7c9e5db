"""`phalanx predict`: the most probable classes of images."""

import glob
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.text import Text

from phalanx.commands.loading import Trained, load_trained
from phalanx.data.augment.framing import still_framing
from phalanx.data.base import Batch
from phalanx.data.pipeline import evaluation_batches
from phalanx.data.sources.bad_images import BadImages
from phalanx.data.sources.encoded import EncodedSource, decode_pool
from phalanx.data.sources.folders import FileSource, Names, file_source, images_below
from phalanx.errors import EXIT_USER, UserError
from phalanx.observe.lines import percent
from phalanx.observe.tables import print_line, print_table, tab_separated


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
    error: str | None = None

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


def predict_images(console: Console, place: Path, images: Sequence[str], top_k: int, style: str, device: str) -> int:
    """Print the classes of each image. Returns the exit code: 0 if every image was readable."""
    names = find_images(images)
    trained = load_for_prediction(place, device)
    failed = 0
    for number, predictions in enumerate(predict(trained, file_images(names, trained), top_k)):
        _print(console, predictions, style, first=number == 0)
        failed += sum(prediction.error is not None for prediction in predictions)
    if not failed:
        return 0
    said = Text(f"{failed} of {len(names)} images could not be read")
    Console(stderr=True).print(said)
    return EXIT_USER


def load_for_prediction(place: Path, device: str) -> Trained:
    """The model, not compiled: a minute of compiling would only delay the answer."""
    return load_trained(place, {"device": device, "compile": False})


def find_images(words: Sequence[str]) -> list[bytes]:
    """Image files from names, folders (with subfolders) and globs. Each once, in order."""
    found: dict[bytes, None] = {}
    for word in words:
        # Path.glob refuses patterns that begin at the root
        matches = [word] if Path(word).exists() else sorted(glob.glob(word, recursive=True))  # noqa: PTH207
        files = [file for match in matches for file in _files(Path(match))]
        if not files:
            raise UserError(
                f"there is no image at {word!r}",
                why="the folder has no image files"
                if matches
                else f"no file, folder or pattern matches in {Path.cwd()}",
                remedy="give image files, folders or globs such as 'photos/*.jpg'",
            )
        found.update(dict.fromkeys(files))
    return list(found)


def _files(path: Path) -> list[bytes]:
    """The file itself; or all images of a folder and its subfolders."""
    if not path.is_dir():
        return [os.fsencode(path)]
    return [os.fsencode(path / os.fsdecode(name)) for name in images_below(path).images]


def file_images(names: list[bytes], trained: Trained) -> FileSource:
    """Image files as a source. Their labels are not used."""
    spec = trained.spec
    return file_source(
        "the images",
        Path(),
        Names(names),
        np.zeros(len(names), dtype=np.int64),
        spec.classes,
        channels=spec.channels,
        pool=decode_pool(trained.threads),
    )


def predict(trained: Trained, source: EncodedSource, top_k: int) -> Iterator[list[Prediction]]:
    """Batch by batch, while threads decode the next ones: images prepared as in validation."""
    spec = trained.spec
    batches = evaluation_batches(
        source,
        still_framing(trained.config.data, spec.image_size, spec.margin),
        min(trained.batch_size, len(source)),
        bad=BadImages(source, cap=1.0),
    )
    with closing(batches):
        for batch in batches:
            answers, reasons = _answers(trained, batch, top_k), dict(batch.bad)
            numbered = ((index, source.name(index)) for index in range(batch.start, batch.start + batch.total))
            yield [Prediction(name, answers.get(index, []), reasons.get(name)) for index, name in numbered]


def _answers(trained: Trained, batch: Batch, top_k: int) -> dict[int, list[tuple[str, float]]]:
    """The most probable classes of the readable images of a batch, by index."""
    answers = {}
    classes = trained.spec.classes
    for micro in batch.micro:
        if not micro.count:
            continue
        top = trained.logits(micro.images).softmax(dim=1).topk(min(top_k, len(classes)), dim=1)
        for index, numbers, values in zip(
            micro.indices.tolist(), top.indices.tolist(), top.values.tolist(), strict=True
        ):
            answers[index] = [(classes[number], value) for number, value in zip(numbers, values, strict=True)]
    return answers


def _print(console: Console, predictions: list[Prediction], style: str, *, first: bool) -> None:
    if style == "json":
        for prediction in predictions:
            print_line(console, json.dumps(_as_json(prediction)))
    elif style == "table" and console.is_terminal:
        rows = [row for prediction in predictions for row in _rows(prediction)]
        print_table(console, ("image", "class", "probability"), rows, numbers=("probability",))
    else:
        lines = [("image", "rank", "class", "probability")] if first else []
        lines += [line for prediction in predictions for line in _lines(prediction)]
        for line in lines:
            print_line(console, tab_separated(line))
    console.file.flush()


def _as_json(prediction: Prediction) -> dict[str, object]:
    if prediction.error is not None:
        return {"image": prediction.image, "error": prediction.error}
    shown = [{"class": name, "probability": value} for name, value in prediction.classes]
    return {"image": prediction.image, "predictions": shown}


def _rows(prediction: Prediction) -> list[tuple[str, str, str]]:
    """Rows for people: the image is named once."""
    if prediction.error is not None:
        return [(prediction.image, f"not readable: {prediction.error}", "")]
    names = [prediction.image, *[""] * len(prediction.classes)]
    return [(image, name, percent(value)) for image, (name, value) in zip(names, prediction.classes, strict=False)]


def _lines(prediction: Prediction) -> list[tuple[str, str, str, str]]:
    """Rows for programs: complete lines. An unreadable image has the rank `error`."""
    if prediction.error is not None:
        return [(prediction.image, "error", prediction.error, "")]
    ranked = enumerate(prediction.classes, 1)
    return [(prediction.image, str(rank), name, f"{value:.6f}") for rank, (name, value) in ranked]
