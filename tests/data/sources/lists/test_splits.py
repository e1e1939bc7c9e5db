"""Splits of lists: a column that names them, and the list beside a training list."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from phalanx.config.schema import DataConfig
from phalanx.data.sources.open import Splits, open_data, open_parts, open_split
from phalanx.errors import UserError
from tests.data.samples import assert_helpful, write_images
from tests.data.sources.lists.list_samples import write_files


@pytest.fixture
def files(tmp_path: Path) -> Path:
    return write_files(tmp_path, [f"{i}.png" for i in range(6)])


def opened(path: Path, text: str, **settings: Any) -> Splits:
    path.write_text(text)
    return open_data(DataConfig(source=str(path), **settings), threads=0)


def names(source: Any) -> list[str]:
    return [Path(source.name(i)).stem for i in range(len(source))]


@pytest.mark.parametrize(
    ("title", "cells"),
    [
        ("split", ["train", "val", "train", "test", "train", "val"]),
        ("Set", ["TRAIN", "Valid", "Train", "Test", "training", "validation"]),
        ("data set", ["train", "valid", "train", "test", "train", "valid"]),
        ("fold", ["train", "dev", "train", "test", "train", "dev"]),
    ],
)
def test_a_column_of_splits(files: Path, title: str, cells: list[str]) -> None:
    rows = "".join(f"{i}.png,{'abcabd'[i]},{cell}\n" for i, cell in enumerate(cells))
    splits = opened(files / "all.csv", f"image,label,{title}\n{rows}")
    assert (names(splits.train), names(splits.val)) == (["0", "2", "4"], ["1", "5"])
    assert splits.train.classes == splits.val.classes == ["a", "b", "c", "d"], "a class may only be in validation"
    assert splits.val.labels.tolist() == [1, 3]
    assert f"column {title!r}: 3 rows for training, 2 for validation; 1 are left out ({cells[3]})" in splits.notes
    assert sum(note.startswith("columns") for note in splits.notes) == 1


@pytest.mark.parametrize(("title", "yes", "no"), [("is_valid", "True", "False"), ("is_train", "0", "1")])
def test_columns_of_yes_and_no(files: Path, title: str, yes: str, no: str) -> None:
    rows = "".join(f"{i}.png,{'ab'[i % 2]},{yes if i > 3 else no}\n" for i in range(6))
    splits = opened(files / "labels.csv", f"fname,labels,{title}\n{rows}")
    assert (names(splits.train), names(splits.val)) == (["0", "1", "2", "3"], ["4", "5"])


def test_the_test_rows_serve_if_there_are_no_others(files: Path) -> None:
    splits = opened(files / "all.csv", "image,label,split\n0.png,a,train\n1.png,b,train\n2.png,a,test\n")
    assert (names(splits.train), names(splits.val)) == (["0", "1"], ["2"])


def test_rows_that_are_left_out_need_no_label(files: Path) -> None:
    text = "image,label,split\n0.png,a,train\n3.png,b,train\n1.png,b,val\n2.png,,test\n"
    assert opened(files / "all.csv", text).train.classes == ["a", "b"]


def test_columns_that_name_no_splits(files: Path) -> None:
    rows = "".join(f"{i}.png,{'ab'[i % 2]},{i % 3}\n" for i in range(6))
    splits = opened(files / "all.csv", f"image,label,fold\n{rows}", val_share=0.3)
    assert (len(splits.train), len(splits.val)) == (4, 2)
    assert "not used: 'fold'" in splits.notes[0]
    rows = rows.replace(",0\n", ",train\n").replace(",1\n", ",train\n").replace(",2\n", ",train\n")
    assert len(opened(files / "all.csv", f"image,label,split\n{rows}", val_share=0.3).train) == 4


def test_splits_without_a_header(files: Path) -> None:
    splits = opened(files / "all.csv", "train,0.png,a\ntrain,1.png,b\nval,2.png,b\n")
    assert (names(splits.train), names(splits.val), splits.val.labels.tolist()) == (["0", "1"], ["2"], [1])


def test_evaluation_takes_the_validation_rows(files: Path) -> None:
    text = "image,label,split\n0.png,a,train\n1.png,b,train\n2.png,b,val\n"
    (files / "all.csv").write_text(text)
    val = open_split(str(files / "all.csv"), DataConfig(), ["a", "b"], threads=0)
    assert (names(val), val.labels.tolist()) == (["2"], [1])
    (files / "all.csv").write_text(text.replace(",val", ",train"))
    assert len(open_split(str(files / "all.csv"), DataConfig(), ["a", "b"], threads=0)) == 3
    parts, _ = open_parts(DataConfig(source=str(files / "all.csv"), val=str(files / "all.csv")), threads=0)
    assert list(parts) == ["train", "val"]


@pytest.mark.parametrize(
    ("train", "val"),
    [
        ("train.csv", "val.csv"),
        ("train.csv", "valid.csv"),
        ("Train.csv", "Test.csv"),
        ("trainLabels.csv", "valLabels.csv"),
        ("training.tsv", "validation.tsv"),
        ("my_train_list.txt", "my_test_list.txt"),
    ],
)
def test_the_list_beside_a_training_list(files: Path, train: str, val: str) -> None:
    mark = "," if train.endswith("csv") else "\t"
    (files / val).write_text("image,label\n2.png,b\n".replace(",", mark))
    splits = opened(files / train, "image,label\n0.png,a\n1.png,b\n".replace(",", mark))
    assert (names(splits.val), splits.val.labels.tolist()) == (["2"], [1])
    assert f"validation: {files / val}, found beside {train}" in splits.notes


def test_kaggles_test_list_has_no_labels(files: Path) -> None:
    rows = "id,label\n0.png,a\n1.png,b\n2.png,a\n3.png,b\n"
    for text in ("id\n4.png\n5.png\n", "id,width\n4.png,7\n5.png,8\n"):
        (files / "test.csv").write_text(text)
        splits = opened(files / "train.csv", rows)
        assert f"{files / 'test.csv'} has no labels: it is not used for validation" in splits.notes
        assert any("held out" in note for note in splits.notes)
    (files / "test.csv").write_text("id,label\n4.png,a\n")
    assert names(opened(files / "train.csv", rows).val) == ["4"]


def test_the_root_of_training_is_only_likely_that_of_validation(tmp_path: Path) -> None:
    write_files(tmp_path, ["images/1.png", "images/2.png", "images/3.png", "others/4.png"])
    (tmp_path / "train.txt").write_text("1.png 0\n2.png 1\n")
    for text, val in (("3.png 0\n", ["3"]), ("others/4.png 0\n", ["4"])):
        (tmp_path / "val.txt").write_text(text)
        splits = open_data(DataConfig(source=str(tmp_path / "train.txt"), root=tmp_path / "images"), threads=0)
        assert (names(splits.train), names(splits.val)) == (["1", "2"], val)


def test_validation_has_the_classes_of_training(files: Path) -> None:
    (files / "val.csv").write_text("image,label\n2.png,c\n")
    with pytest.raises(UserError) as caught:
        opened(files / "train.csv", "image,label\n0.png,a\n1.png,b\n")
    assert_helpful(caught.value, "val.csv, line 2", "'c'")


def test_a_table_labels_a_flat_validation_folder(tmp_path: Path) -> None:
    write_images(tmp_path / "train", {"ape": 3, "cat": 4})
    write_files(tmp_path / "val", ["x_1.JPEG", "x_2.JPEG", "x_3.JPEG"])

    def labels(text: str, **settings: Any) -> list[int]:
        (tmp_path / "val.csv").write_text(text)
        config = DataConfig(source=str(tmp_path), val_labels=tmp_path / "val.csv", **settings)
        return list(open_data(config, threads=0).val.labels.tolist())

    assert labels("filename,label\nx_3.JPEG,ape\nx_1.JPEG,cat\nx_2.JPEG,ape\n") == [1, 0, 0]
    assert labels("id;breed;age\nx_3;ape;7\nx_1;cat;8\nx_2;ape;9\n") == [1, 0, 0]
    assert labels("val\\x_3.JPEG,0\nval\\x_1.JPEG,1\nval\\x_2.JPEG,0\n") == [1, 0, 0]
    assert labels("label\ncat\nape\ncat\n") == [1, 0, 1]
    assert labels("cat\nape\ncat\n") == [1, 0, 1]
    solution = "ImageId,PredictionString\nx_3,ape 85 1 499 272\nx_1,cat 1 2 3 4 cat 5 6 7 8\nx_2,ape 1 1 2 2\n"
    assert labels(solution, label_element=0) == [1, 0, 0]
    with pytest.raises(UserError) as caught:
        labels("filename,label\nx_3.JPEG,ape\nx_4.JPEG,cat\nx_2.JPEG,ape\n")
    assert_helpful(caught.value, "val.csv, line 3", "'x_4.JPEG'")


def test_classes_of_both_parts_are_numbers(files: Path) -> None:
    splits = opened(files / "all.csv", "image,label,split\n0.png,0,train\n1.png,1,train\n2.png,2,val\n")
    assert splits.train.classes == ["0", "1", "2"]
    np.testing.assert_array_equal(splits.val.labels, [2])
