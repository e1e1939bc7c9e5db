"""A run on a table: the same weights as on class folders; and its evaluation on another table."""

import csv
from pathlib import Path

import torch

import phalanx
from phalanx.runs import checkpoint
from tests.commands.digit_files import write_digits
from tests.conftest import LEAN, train_digits

SETTINGS = (*LEAN, "train.length=1ep", "data.channels=1", "data.image_size=8", "model.name=mlp")


def test_the_same_weights_as_on_class_folders(tmp_path: Path) -> None:
    folder = write_digits(tmp_path / "digits", 80)
    files = sorted(folder.rglob("*.png"))
    with (tmp_path / "labels.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["id", "class", "note"])
        rows.writerows((str(path.relative_to(folder)).removesuffix(".png"), path.parent.name, "a, b") for path in files)
    runs = [
        train_digits(tmp_path / name, *SETTINGS, f"data.source={tmp_path / source}")
        for name, source in (("a", "digits"), ("b", "labels.csv"))
    ]
    one, other = (checkpoint.load(checkpoint.find(run)).tensors["model"] for run in runs)
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert "columns: image = 'id', label = 'class' (10 classes)" in (runs[1] / "log.txt").read_text()
    evaluated = phalanx.load(runs[1]).evaluate(tmp_path / "labels.csv", device="cpu")
    assert evaluated.samples == 80
