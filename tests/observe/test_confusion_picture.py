from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from phalanx.errors import UserError
from phalanx.observe.confusion import Answers
from phalanx.observe.confusion_picture import draw_confusion


def some_answers(classes: int) -> Answers:
    """Each class has five samples, of which one is taken for the next class; the last class has none."""
    labels = np.repeat(np.arange(classes - 1), 5)
    answers = labels + (np.arange(len(labels)) % 5 == 0)
    return Answers([f"a name ${number}_ with signs" for number in range(classes)], labels, answers)


@pytest.mark.parametrize("classes", [2, 30, 450])
def test_few_and_many_classes_can_be_drawn(tmp_path: Path, classes: int) -> None:
    draw_confusion(some_answers(classes), "a title with $signs_", tmp_path / "c.png")
    with Image.open(tmp_path / "c.png") as picture:
        pixels = np.asarray(picture.convert("RGB")).astype(int)
    assert 400 < min(pixels.shape[:2]) <= max(pixels.shape[:2]) < 2500
    dark_blue = (pixels[..., 2] - pixels[..., 0] > 60).mean()
    assert dark_blue > 0.002  # the diagonal
    assert [path.name for path in tmp_path.iterdir()] == ["c.png"]


def test_a_place_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be written"):
        draw_confusion(some_answers(2), "", tmp_path / "nowhere" / "c.png")
