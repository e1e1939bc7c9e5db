"""The worst mistakes of an evaluation as pictures: confident and wrong, often because the label is."""

import json
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image

from phalanx.data.base import Framing, Source
from phalanx.data.order import Indices
from phalanx.errors import UserError
from phalanx.observe.confusion import Answers
from phalanx.runs.folder import write_run_file

FILE, FOLDER = "mistakes.json", "mistakes"
MOST = 96  # pictures of all
MOST_OF_PAIR = 12  # of one class taken for one other: the others are seen too
_LARGEST = 160  # pixels of a picture's side

Shares = npt.NDArray[np.float32]  # probabilities


def worst(answers: Answers, sure: Shares) -> list[int]:
    """Positions of the wrong answers to show, the most confident first, not too many of one pair of classes."""
    wrong = np.flatnonzero(answers.labels != answers.answers)
    by_confidence = wrong[np.argsort(-sure[wrong], kind="stable")]
    taken: dict[tuple[int, int], int] = {}
    found: list[int] = []
    for position in by_confidence.tolist():
        pair = int(answers.labels[position]), int(answers.answers[position])
        taken[pair] = taken.get(pair, 0) + 1
        if taken[pair] <= MOST_OF_PAIR and len(found) < MOST:
            found.append(position)
    return found


def write_mistakes(
    folder: Path, source: Source, framing: Framing, answers: Answers, indices: Indices, sure: Shares, own: Shares
) -> None:
    """Write mistakes.json, and a picture of each as the model saw it. `own` are the true classes' probabilities."""
    places = worst(answers, sure)
    pictures = folder / FOLDER
    try:
        pictures.mkdir(exist_ok=True)
        for before in pictures.glob("*.png"):
            before.unlink()
    except OSError as error:
        raise UserError(f"{pictures} cannot be written", why=error.strerror or str(error), remedy="--out") from error
    rows = []
    for place in places:
        index = int(indices[place])
        read = source.read(np.array([index]), framing, 0, replace_bad=False)
        if len(read.images):
            _image(read.images[0]).save(pictures / f"{index}.png")
        rows.append(
            {
                "image": f"{FOLDER}/{index}.png" if len(read.images) else None,
                "name": source.name(index),
                "class": answers.classes[int(answers.labels[place])],
                "answer": answers.classes[int(answers.answers[place])],
                "probability": round(float(sure[place]), 4),
                "class_probability": round(float(own[place]), 4),
            }
        )
    text = json.dumps({"mistakes": rows}, indent=1, ensure_ascii=False)
    write_run_file(folder / FILE, text + "\n")


def _image(pixels: npt.NDArray[np.uint8]) -> Image.Image:
    image = Image.fromarray(np.ascontiguousarray(pixels[:, :, :3]) if pixels.shape[2] >= 3 else pixels[:, :, 0])
    if image.width > _LARGEST:
        image.thumbnail((_LARGEST, _LARGEST))
    return image
