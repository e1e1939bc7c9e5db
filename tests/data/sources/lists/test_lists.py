"""Lists that give labels: every way to write them, every way to get them wrong."""

from pathlib import Path

import numpy as np
import pytest

from phalanx.data.sources.folders import FileSource
from phalanx.data.sources.lists.flat_folder import open_flat_folder
from phalanx.data.sources.lists.open import open_list
from phalanx.errors import UserError
from tests.data.samples import REAL, FixedViews, assert_helpful, image_bytes, needs_real_data, smooth

CLASSES = ["ape", "great white shark", "zebra"]


def listed(folder: Path, text: str, classes: list[str] | None = None, name: str = "train.txt") -> FileSource:
    (folder / name).write_text(text)
    return open_list(folder / name, classes, channels=None, pool=None)


def refused(folder: Path, text: str, classes: list[str] | None = None) -> UserError:
    with pytest.raises(UserError) as caught:
        listed(folder, text, classes)
    return caught.value


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    for name in ("a.png", "with blanks in it.png", "deep/b.png", "c.png"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(image_bytes(smooth(6, 6)))
    return tmp_path


def test_numbers_make_the_classes_up_to_the_largest(pictures: Path) -> None:
    source = listed(pictures, "\ufeff# a comment\n\na.png 0\nwith blanks in it.png 3\r\ndeep/b.png\t1\n")
    assert source.classes == ["0", "1", "2", "3"]
    np.testing.assert_array_equal(source.labels, [0, 3, 1])
    assert source.name(1) == str(pictures / "with blanks in it.png")
    assert source.read(np.arange(3), FixedViews(4), 0, replace_bad=False).bad == []


def test_names_make_the_classes_in_their_order(pictures: Path) -> None:
    source = listed(pictures, f"a.png\tgreat white shark\n{pictures}/c.png ape\ndeep/b.png 7\n")
    assert source.classes == ["7", "ape", "great white shark"]
    np.testing.assert_array_equal(source.labels, [2, 1, 0])
    assert source.name(1) == str(pictures / "c.png")


def test_mxnets_lists(pictures: Path) -> None:
    source = listed(pictures, "0\t1.000000\ta.png\n1\t0.000000\twith blanks in it.png\n2\t1\tdeep/b.png\n")
    assert source.classes == ["0", "1"]
    np.testing.assert_array_equal(source.labels, [1, 0, 1])


def test_known_classes_by_name_and_by_number(pictures: Path) -> None:
    source = listed(pictures, "a.png\tgreat white shark\nc.png 2\na.png ape\n", CLASSES)
    np.testing.assert_array_equal(source.labels, [1, 2, 0])
    assert source.classes == CLASSES


def test_a_name_goes_before_a_number(pictures: Path) -> None:
    np.testing.assert_array_equal(listed(pictures, "a.png 2\nc.png 0\n", ["1", "10", "2"]).labels, [2, 0])


def test_missing_files_are_counted_and_the_first_named(pictures: Path) -> None:
    lines = [f"gone/{i}.png 0" for i in range(20)]
    error = refused(pictures, "\n".join(["a.png 0", *lines]))
    assert_helpful(error, "20 files", "gone/0.png, gone/1.png", str(pictures))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ["empty"]),
        ("# nothing but this\n\n", ["empty"]),
        ("a.png 0\na.png\n", ["line 2", "1 column"]),
        ("a.png 0\n\na.png\t0\t1\n", ["line 3", "3 column"]),
        ("0\t4\t5\t1\ta.png\n", ["line 1", "3 labels"]),
        ("a.png 0\na.png -1\n", ["line 2", "-1"]),
        ("a.png 0\nc.png 123456789\n", ["line 2", "123456789"]),
        ("a.png 0\nb\0.png 1\n", ["not a text file", "line 2"]),
    ],
)
def test_lines_that_make_no_sense(pictures: Path, text: str, words: list[str]) -> None:
    assert_helpful(refused(pictures, text), "train.txt", *words)


def test_labels_that_are_not_among_known_classes(pictures: Path) -> None:
    assert_helpful(refused(pictures, "a.png 0\nc.png 3\n", CLASSES), "line 2", "'3'", "from 0 to 2")
    assert_helpful(refused(pictures, "a.png\tzebras\n", CLASSES), "line 1", "zebras", "did you mean zebra")


@needs_real_data
def test_a_detection_list_is_refused() -> None:
    with pytest.raises(UserError) as caught:
        open_list(REAL / "foreign/rec/Image-detect/val.lst", None, channels=None, pool=None)
    assert_helpful(caught.value, "line 1", "labels", "detection")


@needs_real_data
def test_a_real_list_whose_images_are_packed_elsewhere() -> None:
    with pytest.raises(UserError) as caught:
        open_list(REAL / "foreign/rec/FaceDetection/train.lst", None, channels=None, pool=None)
    assert_helpful(caught.value, "files that do not exist", "0/1597.jpg")


@pytest.fixture
def flat(tmp_path: Path) -> Path:
    folder = tmp_path / "val"
    folder.mkdir()
    for i in (3, 1, 2):
        (folder / f"image_{i}.JPEG").write_bytes(image_bytes(smooth(6, 6), "JPEG"))
    return folder


def labelled(folder: Path, text: str) -> FileSource:
    (folder.parent / "labels.txt").write_text(text)
    return open_flat_folder(folder, folder.parent / "labels.txt", CLASSES, channels=None, pool=None)


@pytest.mark.parametrize(
    "text",
    [
        "image_3.JPEG 1\nimage_1.JPEG 0\nimage_2.JPEG 2\n",
        "image_3.JPEG\tgreat white shark\nval/image_1.JPEG ape\nimage_2.JPEG 2\n",
        "0\n2\n1\n",
        "# in the order of the files\nape\nzebra\ngreat white shark\n",
    ],
)
def test_a_flat_folder(flat: Path, text: str) -> None:
    source = labelled(flat, text)
    assert [Path(source.name(i)).name for i in range(3)] == ["image_1.JPEG", "image_2.JPEG", "image_3.JPEG"]
    np.testing.assert_array_equal(source.labels, [0, 2, 1])
    assert source.read(np.arange(3), FixedViews(4), 0, replace_bad=False).bad == []


def test_a_label_alone_may_be_a_name_with_blanks(flat: Path) -> None:
    np.testing.assert_array_equal(labelled(flat, "great white shark\nape\n2\n").labels, [1, 0, 2])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ["empty"]),
        ("0\n1\n", ["2 labels", "3 images"]),
        ("0\n1\n2\n0\n", ["4 labels", "3 images"]),
        ("image_1.JPEG 0\n", ["1 labels", "3 images"]),
        ("image_1.JPEG 0\nother.JPEG 1\n", ["line 2", "other.JPEG"]),
        ("image_1.JPEG 0\nimage_1.JPEG 1\n", ["line 2", "already"]),
        ("image_1.JPEG 3\n", ["line 1", "'3'", "from 0 to 2"]),
        ("1\n2\n3\n", ["line 3", "'3'", "count labels from 0"]),
        ("1000\n2\n1\n", ["line 1", "'1000'"]),
        ("ape\nzebr\n", ["line 2", "did you mean zebra"]),
    ],
)
def test_label_lists_that_do_not_fit(flat: Path, text: str, words: list[str]) -> None:
    with pytest.raises(UserError) as caught:
        labelled(flat, text)
    assert_helpful(caught.value, "labels.txt", *words)


def test_a_label_list_that_is_not_there(flat: Path) -> None:
    with pytest.raises(UserError) as caught:
        open_flat_folder(flat, flat / "no.txt", CLASSES, channels=None, pool=None)
    assert_helpful(caught.value, "no.txt", "No such file")
