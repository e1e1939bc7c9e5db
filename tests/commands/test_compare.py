import io
from pathlib import Path

import pytest
import torch
from rich.console import Console

from phalanx.commands.compare import compare_runs, largest_difference
from phalanx.errors import UserError
from tests.conftest import LEAN, train_digits


def test_a_run_is_identical_to_itself_and_differs_from_another(digits_run: Path, tmp_path: Path) -> None:
    console = Console(file=io.StringIO(), width=200)
    compare_runs(console, digits_run, digits_run, tmp_path / "same.png")
    settings = ["model.name=wrn10_1", "train.length=1ep", "train.seed=1", *LEAN]
    other = train_digits(tmp_path / "other", *settings)
    compare_runs(console, digits_run, other, tmp_path / "other.png")
    assert isinstance(console.file, io.StringIO)
    said = console.file.getvalue()
    assert "identical in all" in said
    assert "largest difference in" in said
    assert (tmp_path / "same.png").stat().st_size > 0


def test_the_largest_difference_is_named() -> None:
    left = {"a": torch.ones(4), "b": torch.full((2,), 10.0)}
    right = {"a": torch.tensor([1.0, 1.0, 1.0, 1.5]), "b": torch.full((2,), 11.0)}
    found = largest_difference(left, right)
    assert found is not None
    assert (found.name, found.largest) == ("a", 0.5)
    assert found.relative == pytest.approx(0.25)


def test_what_is_no_run_is_refused(digits_run: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is not a run"):
        compare_runs(Console(file=io.StringIO()), digits_run, tmp_path, tmp_path / "c.png")
