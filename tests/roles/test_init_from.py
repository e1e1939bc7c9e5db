"""A run that starts from another one has the right classes, however the data of the two orders them."""

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from rich.console import Console

from phalanx.commands.evaluate import measure
from phalanx.errors import UserError
from phalanx.runs.events import read_events
from tests.conftest import LEAN
from tests.roles.test_trainer import train

CLASSES = 12
EACH = 5
START = (
    *("model.name=mlp", "data.image_size=8", "data.channels=3", "train.batch_size=12", "schedule.kind=constant"),
    *("augment.crop=none", "augment.flip=0", "optim.lr=0.05", *LEAN),
)
KEEP = ("train.length=1st", "optim.lr=1e-12")


@pytest.fixture(scope="module")
def numbers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Images that show their class by where they are bright, in folders called 0 … 11, and the same as a list."""
    root = tmp_path_factory.mktemp("numbers")
    generator, lines = np.random.default_rng(0), []
    for number in range(CLASSES):
        (root / str(number)).mkdir()
        for image in range(EACH):
            pixels = generator.integers(0, 40, (8, 8, 3), dtype=np.uint8)
            row, column = divmod(number, 4)
            pixels[2 * row : 2 * row + 2, 2 * column : 2 * column + 2] = 255
            Image.fromarray(pixels).save(root / str(number) / f"{image}.png")
            lines.append(f"{number}/{image}.png {number}\n")
    (root / "numbers.lst").write_text("".join(lines))
    return root


@pytest.fixture(scope="module")
def trained(numbers: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that is always right. Folders are sorted as text: class 10 comes third."""
    out = tmp_path_factory.mktemp("trained") / "run"
    train(out, *START, f"data.source={numbers}", "train.length=15ep", "eval.every=100%")
    assert top1(out) == 1.0
    return out


def top1(run: Path) -> float:
    return float([record["top1"] for record in read_events(run) if record["kind"] == "eval"][-1])


def test_numbers_as_text_and_as_numbers_are_the_same_classes(numbers: Path, trained: Path, tmp_path: Path) -> None:
    said = train(tmp_path / "run", *START, *KEEP, f"data.source={numbers}/numbers.lst", init_from=trained)
    assert top1(tmp_path / "run") == 1.0  # by position it would be 2 of 12
    assert f"the 12 classes of {trained} are in another order: its classifier was matched by name" in said


def test_other_classes_are_refused_and_a_new_head_starts_anew(numbers: Path, trained: Path, tmp_path: Path) -> None:
    other = f"data.class_names={[f'c{i}' for i in range(11)] + ['11']}"
    settings = (*START, *KEEP, f"data.source={numbers}/numbers.lst", other)
    with pytest.raises(UserError, match="trained on other classes"):
        train(tmp_path / "run", *settings, init_from=trained)
    said = train(tmp_path / "new", *settings, "model.new_head=true", init_from=trained)
    assert f"keeps 1 classes of {trained} by name, and starts anew for 11" in said


def test_a_run_is_not_resumed_with_its_classes_in_another_order(numbers: Path, trained: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    train(out, *START, "train.length=2st", f"data.source={numbers}")
    with pytest.raises(UserError, match="in another order"):
        train(out, "train.length=4st", f"data.source={numbers}/numbers.lst", resume=True)


def test_evaluation_matches_by_name(numbers: Path, trained: Path) -> None:
    console = Console(file=io.StringIO())
    for data in (None, str(numbers), str(numbers / "numbers.lst")):
        measured = measure(console, trained, data, None, "cpu", "fp32", None)
        assert measured.result.numbers.totals.top1 == 1.0
