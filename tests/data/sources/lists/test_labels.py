"""Labels of lists: a column for each class, several labels in a cell, MXNet's vectors."""

from pathlib import Path

import numpy as np
import pandas
import pytest

from phalanx.data.sources.labelled import multi_hot
from tests.data.samples import assert_helpful
from tests.data.sources.lists.list_samples import assert_same_pixels, opened, refused, write_files, written

ISIC = ["MEL", "NV", "BCC", "AKIEC", "BKL", "DF", "VASC"]


@pytest.fixture
def files(tmp_path: Path) -> Path:
    return write_files(tmp_path, ["a.jpg", "b.jpg", "c.jpg", "d.jpg"])


@pytest.mark.parametrize("values", [float, int, bool])
def test_a_column_for_each_class(files: Path, values: type) -> None:
    wanted = [3, 0, 6, 3]
    frame = pandas.DataFrame(np.eye(7)[wanted].astype(values), columns=ISIC)
    frame.insert(0, "image", ["a", "b", "c", "d"])
    frame.to_csv(files / "GroundTruth.csv", index=False)
    source = opened(files / "GroundTruth.csv")
    read = pandas.read_csv(files / "GroundTruth.csv")
    assert source.classes == list(read.columns[1:])
    assert source.labels.tolist() == read[ISIC].to_numpy().argmax(axis=1).tolist() == wanted
    assert_same_pixels(source, [files / f"{name}.jpg" for name in read["image"]])
    assert "label = 'MEL', 'NV', 'BCC', … 'VASC' (7 in all) (7 classes)" in source.notes[0]


PLANTS = "image_id,healthy,multiple_diseases,rust,scab\n"


def test_rows_of_several_classes_or_none_need_a_setting(files: Path) -> None:
    several = PLANTS + "a,1,0,0,0\nb,0,0,1,1\nc,0,0,0,0\n"
    assert_helpful(refused(files / "t.csv", several), "line 3 has rust, scab", "data.multi_label=true")
    assert_helpful(
        refused(files / "t.csv", PLANTS + "a,1,0,0,0\nc,0,0,0,0\n"), "line 3 has no class", "data.multi_label"
    )
    source = written(files / "t.csv", several, multi_label=True)
    assert source.multi_label
    np.testing.assert_array_equal(source.labels, [[1, 0, 0, 0], [0, 0, 1, 1], [0, 0, 0, 0]])
    assert source.labels.dtype == np.int64
    known = written(files / "t.csv", PLANTS + "a,0,0,0,1\n", ["scab", "healthy"])
    assert known.labels.tolist() == [0]


def test_columns_of_classes_among_others(files: Path) -> None:
    text = "image,age,MEL,NV,sex\na,55,1,0,m\nb,60,0,1,f\nc,65,1,0,f\n"
    source = written(files / "t.csv", text)
    assert (source.classes, source.labels.tolist()) == (["MEL", "NV"], [0, 1, 0])
    assert "not used: 'age', 'sex'" in source.notes[0]
    text = "image,age,old,tall,sex\na,55,1,1,m\nb,60,0,1,f\n"
    assert_helpful(refused(files / "t.csv", text), "data.label_field=age", "2 'old'")
    source = written(files / "t.csv", text, multi_label=True, label_field="tall,old")
    assert source.classes == ["tall", "old"]
    np.testing.assert_array_equal(source.labels, [[1, 1], [1, 0]])


def test_minus_one_for_zero(files: Path) -> None:
    """CelebA writes -1 and 1; CheXpert's -1 beside 0 and 1 is something else."""
    source = written(files / "t.csv", "image_id,Bald,Young\na.jpg,-1,1\nb.jpg,1,1\n", multi_label=True)
    np.testing.assert_array_equal(source.labels, [[0, 1], [1, 1]])
    error = refused(files / "t.csv", "Path,Edema,Fracture\na.jpg,-1,1\nb.jpg,1,0\n", multi_label=True)
    assert_helpful(error, "line 2", "'-1'", "'Edema'")


def test_a_value_far_below_that_is_neither_0_nor_1(files: Path) -> None:
    rows = "".join("a.jpg,0,1\n" for _ in range(1500))
    assert_helpful(refused(files / "t.csv", f"image,x,z\n{rows}b.jpg,0.4,0.6\n"), "line 1502", "'0.4'", "'x'")


@pytest.mark.parametrize(
    ("cells", "separator"),
    [
        (["cat dog", "cat", "eel"], None),
        (["cat|dog", "cat", "eel"], "|"),
        (["cat;dog", "cat", "eel"], ";"),
        (["cat, dog", "cat", "eel"], ","),
        (["['cat', 'dog']", "['cat']", "['eel']"], "list"),
        (["[cat dog]", "[cat]", "[eel]"], "list"),
    ],
)
def test_several_labels_in_a_cell(files: Path, cells: list[str], separator: str | None) -> None:
    frame = pandas.DataFrame({"image_name": ["a", "b", "c", "d"], "tags": [*cells, ""]})
    frame.to_csv(files / "train_v2.csv", index=False)
    source = opened(files / "train_v2.csv", multi_label=True)
    assert source.classes == ["cat", "dog", "eel"]
    np.testing.assert_array_equal(source.labels, multi_hot([[0, 1], [0], [2], []], 3))
    assert_same_pixels(source, [files / f"{name}.jpg" for name in "abcd"])
    frame.iloc[:3].to_csv(files / "train_v2.csv", index=False)
    first = opened(files / "train_v2.csv", label_element=0)
    assert [first.classes[label] for label in first.labels] == ["cat", "cat", "eel"]


def test_numbers_of_several_labels(files: Path) -> None:
    for several, one in (("16 0", "2"), ("[16, 0]", "[2]"), ("16|0", "2"), ("(16,0)", "(2,)")):
        text = f'Id,Target\na,"{several}"\nb,"{one}"\n'
        source = written(files / "t.csv", text, multi_label=True)
        assert source.classes == [str(number) for number in range(17)]
        np.testing.assert_array_equal(source.labels, multi_hot([[0, 16], [2]], 17))
        if "|" not in several:  # a class may be called so
            assert_helpful(refused(files / "t.csv", text), "line 2 has 2 labels", "data.multi_label=true")


@pytest.mark.parametrize(
    "text",
    [
        "image,tags\na,clear primary\nb,clear\nc,primary\nd,clear primary road\n",
        "image,label\na,cat|dog\nb,cat\n",
        "image,Finding Labels\na,Edema|Mass\nb,Mass|Nodule\n",
        "image,label\na,\"['cat', 'dog']\"\nb,['cat']\n",
    ],
)
def test_several_labels_are_not_taken_for_a_class(files: Path, text: str) -> None:
    assert_helpful(refused(files / "t.csv", text), "2 labels", "data.multi_label=true", "data.label_element")
    title = text.partition("\n")[0].partition(",")[2]
    assert len(written(files / "t.csv", text, label_field=title).classes) == text.count("\n") - 1


def test_names_with_blanks_stay_names(files: Path) -> None:
    source = written(files / "t.csv", "image,label\na,white shark\nb,white wolf\nc,grey wolf\n")
    assert source.classes == ["grey wolf", "white shark", "white wolf"]


def test_a_row_for_each_label(files: Path) -> None:
    """Open Images has such lists."""
    text = "ImageID,LabelName\na,cat\nb,dog\na,dog\na,cat\n"
    source = written(files / "t.csv", text, multi_label=True)
    assert_same_pixels(source, [files / "a.jpg", files / "b.jpg"])
    np.testing.assert_array_equal(source.labels, [[1, 1], [0, 1]])
    assert "4 rows name 2 files" in source.notes[-1]


def test_mxnets_lists_of_several_labels(files: Path) -> None:
    vectors = "0\t1\t0\t1\ta.jpg\n1\t0\t0\t0\tb.jpg\n"
    error = refused(files / "t.lst", vectors)
    assert_helpful(error, "line 1", "3 labels", "data.label_element", "data.multi_label=true")
    source = written(files / "t.lst", vectors, multi_label=True)
    assert source.classes == ["0", "1", "2"]
    np.testing.assert_array_equal(source.labels, [[1, 0, 1], [0, 0, 0]])
    numbers = "0\t4.0\t2.0\ta.jpg\n1\t1.0\tb.jpg\n2\t3\t1\t0\tc.jpg\n"
    source = written(files / "t.lst", numbers, multi_label=True)
    np.testing.assert_array_equal(source.labels, multi_hot([[2, 4], [1], [0, 1, 3]], 5))
    assert written(files / "t.lst", vectors, label_element=2).labels.tolist() == [1, 0]
    assert_helpful(refused(files / "t.lst", numbers, label_element=1), "line 2", "it has 1")


def test_lists_of_caffe_with_a_column_for_each_class(files: Path) -> None:
    source = written(files / "t.txt", "a.jpg 0 1 0\nb.jpg 1 0 0\n")
    assert (source.classes, source.labels.tolist()) == (["0", "1", "2"], [1, 0])
    source = written(files / "t.txt", "a.jpg 0 1 1\nb.jpg 1 0 0\n", multi_label=True)
    np.testing.assert_array_equal(source.labels, [[0, 1, 1], [1, 0, 0]])


def test_multi_label_with_one_label_each(files: Path) -> None:
    source = written(files / "t.csv", "image,label\na,0\nb,2\n", multi_label=True)
    np.testing.assert_array_equal(source.labels, [[1, 0, 0], [0, 0, 1]])
    assert_helpful(refused(files / "t.csv", "image,label\na,\nb,\n", multi_label=True), "no row", "data.label_field")
