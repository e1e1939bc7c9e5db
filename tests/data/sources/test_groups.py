"""Groups from names, folders and fields; what is trained on and validated with them, and what users are told."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from pydantic import ValidationError

from phalanx.config.schema import DataConfig
from phalanx.data.base import Source
from phalanx.data.sources.arrays import ArraySource, array_source
from phalanx.data.sources.divide import divide
from phalanx.data.sources.open import open_data
from phalanx.errors import UserError
from tests.data.samples import assert_helpful, noise


def write(root: Path, names: list[str]) -> Path:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(noise(4, 4, 3)).save(root / name)
    return root


def patients(root: Path, form: str = "{label}/patient{patient}_{number}.png") -> Path:
    """Twelve patients of five images in each of two classes, below a folder whose name looks like a patient's, too."""
    names = [
        form.format(label=label, patient=patient, number=number)
        for label in ("benign", "malign")
        for patient in range(12)
        for number in range(5)
    ]
    return write(root / "patient99_study", names)


def groups_in(source: Source, expression: str) -> set[str]:
    """The groups of a split, found by other means than the source's own."""
    return {re.findall(expression, source.name(i))[-1] for i in range(len(source))}


def test_patients_are_never_divided(tmp_path: Path) -> None:
    config = DataConfig(source=str(patients(tmp_path)), group=r"(patient\d+)_")
    splits = open_data(config, threads=0)
    train, val = (groups_in(part, r"patient\d+") for part in (splits.train, splits.val))
    assert len(train | val) == 12
    assert not train & val
    assert len(val) == 1
    assert np.bincount(splits.val.labels).tolist() == [5, 5]
    assert splits.notes == [
        "12 groups, with their images: patient0 (10), patient10 (10), patient11 (10) …; the largest has 10",
        "validation: 1 of 12 groups, 10 of 120 images (8.33 %), held out",
    ]


def test_folders_below_the_class_are_groups(tmp_path: Path) -> None:
    source = patients(tmp_path, "{label}/p{patient}/scan/{number}.png")
    splits = open_data(DataConfig(source=str(source), group="folder", val_share=0.25), threads=0)
    train, val = (groups_in(part, r"/(p\d+)/") for part in (splits.train, splits.val))
    assert (len(val), train & val) == (3, set())
    flat = write(tmp_path / "flat", ["a/p1/1.png", "a/2.png", "b/p1/3.png"])
    with pytest.raises(UserError) as caught:
        open_data(DataConfig(source=str(flat), group="folder"), threads=0)
    assert_helpful(caught.value, "1 of 3 samples", "a/2.png", "CLASS/GROUP/IMAGE")


def test_folds_of_groups(tmp_path: Path) -> None:
    source = str(patients(tmp_path))
    seen: list[str] = []
    for number in (1, 2, 3):
        splits = open_data(DataConfig(source=source, group=r"/(patient\d+)", folds=3, fold=number), threads=0)
        assert not groups_in(splits.train, r"patient\d+_") & groups_in(splits.val, r"patient\d+_")
        assert f"validation: fold {number} of 3, 4 of 12 groups, 40 of 120 images (33.3 %)" in splits.notes
        seen += [splits.val.name(i) for i in range(len(splits.val))]
    assert len(set(seen)) == len(seen) == 120


def test_names_without_a_group_are_told(tmp_path: Path) -> None:
    source = write(tmp_path, ["a/p1_1.png", "a/p2_1.png", "b/other.png"])
    with pytest.raises(UserError) as caught:
        open_data(DataConfig(source=str(source), group=r"(p\d)_"), threads=0)
    assert_helpful(caught.value, "1 of 3 samples", "b/other.png")


def test_one_group_cannot_be_held_out(tmp_path: Path) -> None:
    source = write(tmp_path, [f"{label}/p1_{number}.png" for label in "ab" for number in range(3)])
    with pytest.raises(UserError) as caught:
        open_data(DataConfig(source=str(source), group=r"(p\d)_"), threads=0)
    assert_helpful(caught.value, "6 images are in 1 group (p1)", "data.val")
    with pytest.raises(UserError) as caught:
        open_data(DataConfig(source=str(source), group=r"(p\d)_", folds=3, fold=1), threads=0)
    assert_helpful(caught.value, "1 groups cannot be divided into 3 folds", "more data")


def test_groups_of_a_given_validation_part_are_compared(tmp_path: Path) -> None:
    names = ["train/a/p1_1.png", "train/b/p2_1.png", "val/a/p2_2.png", "val/b/p3_1.png"]
    splits = open_data(DataConfig(source=str(write(tmp_path, names)), group=r"(p\d)_"), threads=0)
    assert (len(splits.train), len(splits.val)) == (2, 2)
    shared = "1 of 2 groups of the validation data are in the training data, too (p2)"
    assert any(note.startswith(shared) for note in splits.notes)
    write(tmp_path, ["val/a/other.png"])
    splits = open_data(DataConfig(source=str(tmp_path), group=r"(p\d)_"), threads=0)
    assert any("are not compared with those of training" in note for note in splits.notes)


def source_of(labels: list[int], groups: list[str] | None = None) -> ArraySource:
    classes = [f"class {number}" for number in range(max(labels) + 1)]
    images = noise(len(labels), 2, 2, 1)
    made = array_source("noise", "noise", images, np.array(labels), classes, image_size=2, channels=None)
    return replace(made, groups=groups)


def test_a_field_of_the_data_names_the_groups() -> None:
    source = source_of([0, 0, 1, 1] * 5, [f"author {number // 2}" for number in range(20)])
    found = divide(source, None, DataConfig(group_field="author", val_share=0.2))
    held = [int(found.val.name(i).partition("#")[2]) // 2 for i in range(len(found.val))]
    assert len(found.val) == 4
    assert sorted(held) == sorted(2 * list(set(held)))
    assert found.train.groups is None
    with pytest.raises(UserError) as caught:
        divide(source_of([0, 1]), None, DataConfig(group_field="author"))
    assert_helpful(caught.value, "data.group_field=author", "data.group=REGEX")


def test_shares_that_whole_groups_cannot_give_are_told() -> None:
    # Class 1 has two groups of 5: the nearest to a tenth is none, and validation would lack the class.
    source = source_of([0] * 100 + [1] * 10, [f"g{i // 5}" for i in range(110)])
    found = divide(source, None, DataConfig(group_field="g"))
    assert "whole groups cannot give 10 % of every class: class 1 50 %" in found.notes


def test_a_fold_lacks_what_is_too_rare_and_says_so() -> None:
    source = source_of([0] * 10 + [1])
    notes = [divide(source, None, DataConfig(folds=5, fold=number)).notes[1:] for number in range(1, 6)]
    assert notes.count(["validation lacks 1 of 2 classes: class 1"]) == 4
    assert notes.count(["training lacks 1 of 2 classes: class 1"]) == 1


def test_the_own_validation_part_stays_out_of_folds() -> None:
    own = source_of([0, 1, 1])
    found = divide(source_of([0, 1] * 6), own, DataConfig(folds=4, fold=2))
    assert (len(found.train), len(found.val), found.test) == (9, 3, own)
    assert "the data's own validation part (3 images) stays out, as a test set" in found.notes


def test_folds_without_a_number_are_refused() -> None:
    with pytest.raises(UserError) as caught:
        divide(source_of([0, 1] * 6), None, DataConfig(folds=4))
    assert_helpful(caught.value, "data.folds=4", "--folds", "data.fold=1 to data.fold=4")


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"fold": 2}, "data.fold=2 is none of data.folds=None"),
        ({"fold": 6, "folds": 5}, "data.fold=6 is none of data.folds=5"),
        ({"group": "x", "group_field": "y"}, "data.group and data.group_field"),
        ({"group": "(patient"}, "no regular expression"),
        ({"folds": 1}, "greater than or equal to 2"),
    ],
)
def test_settings_that_contradict_each_other(given: dict[str, object], told: str) -> None:
    with pytest.raises(ValidationError, match=re.escape(told)):
        DataConfig.model_validate(given)


def test_a_column_of_a_list_names_groups(tmp_path: Path) -> None:
    files = patients(tmp_path, "{label}_{patient}_{number}.png")
    names = sorted(path.name for path in files.iterdir())
    rows = [f"{name},{name.split('_')[0]},clinic-{name.split('_')[1]}" for name in names]
    table = files / "all.csv"
    table.write_text("\n".join(["file,label,patient", *rows]) + "\n")
    splits = open_data(DataConfig(source=str(table), group_field="patient", val_share=0.25), threads=0)
    train, val = (groups_in(part, r"_(\d+)_") for part in (splits.train, splits.val))
    assert (len(val), train & val) == (3, set())
    with pytest.raises(UserError) as caught:
        open_data(DataConfig(source=str(table), group_field="doctor"), threads=0)
    assert_helpful(caught.value, "no column 'doctor'", "file, label, patient", "data.group_field")
