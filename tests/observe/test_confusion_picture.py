from pathlib import Path

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image

from phalanx.errors import UserError
from phalanx.observe.class_names import class_names
from phalanx.observe.confusion import Answers
from phalanx.observe.confusion_picture import LONGEST_NAME, confusion_figure, draw_confusion


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
    assert 400 < min(pixels.shape[:2]) <= max(pixels.shape[:2]) < 2800
    dark_blue = (pixels[..., 2] - pixels[..., 0] > 60).mean()
    assert dark_blue > 0.002  # the diagonal
    assert [path.name for path in tmp_path.iterdir()] == ["c.png"]


def test_a_place_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be written"):
        draw_confusion(some_answers(2), "", tmp_path / "nowhere" / "c.png")


def figure_of(answers: Answers) -> Figure:
    return confusion_figure(answers, class_names(answers.classes, LONGEST_NAME), "title")


def texts(axes: Axes) -> list[str]:
    return [text.get_text() for text in axes.texts]


@pytest.mark.parametrize("classes", [2, 20, 100])
def test_classes_are_named_along_both_axes(classes: int) -> None:
    answers = some_answers(classes)
    matrix = figure_of(answers).axes[0]
    for labels in (matrix.get_xticklabels(), matrix.get_yticklabels()):
        assert [label.get_text() for label in labels] == answers.classes
        assert min(float(label.get_fontsize()) for label in labels) >= 6


def test_few_classes_have_their_counts_in_the_cells() -> None:
    figure = figure_of(some_answers(3))
    assert len(figure.axes) == 2  # the matrix and its colour bar
    assert texts(figure.axes[0]) == ["4", "1", "4", "1"]


def test_many_classes_have_a_table_of_the_worst_confusions() -> None:
    labels = np.array([7] * 9 + [3] * 5 + [1] * 4)
    answers = np.array([8] * 6 + [7] * 3 + [4] * 2 + [3] * 3 + [1] * 4)
    figure = figure_of(Answers([f"class {n}" for n in range(100)], labels, answers))
    table = texts(figure.axes[1])
    assert table[:5] == ["most frequent confusions", "times", "of", "true class", "answer"]
    assert table[5:] == ["6", "9", "class 7", "class 8", "2", "5", "class 3", "class 4"]
    many = texts(figure_of(some_answers(100)).axes[1])
    assert many[-1] == "and 59 other pairs, in eval.json"


def test_hundreds_of_classes_are_numbered_on_the_axes_and_in_the_table() -> None:
    figure = figure_of(some_answers(450))
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()][:3] == ["0", "50", "100"]
    assert "3 neighbouring classes" in figure.axes[0].get_ylabel()
    assert texts(figure.axes[1])[7] == "0 a name $0_ with signs"


def test_names_without_a_font_are_numbers_with_a_legend_beside_the_picture(tmp_path: Path) -> None:
    nowhere = "\U0010fffd"  # for private use: no font has it
    classes = ["cat", nowhere, "قطة"]
    draw_confusion(Answers(classes, np.array([0, 1, 2]), np.array([0, 1, 1])), "title", tmp_path / "c.png")
    assert (tmp_path / "c-classes.tsv").read_text() == f"0\tcat\n1\t{nowhere}\n2\tقطة\n"
    names = class_names(classes)
    figure = confusion_figure(Answers(classes, np.array([0]), np.array([0])), names, "", names.note(Path("x.tsv")))
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()][:2] == ["cat", "#1"]
    assert "x.tsv says which number is which" in figure.texts[0].get_text()
