"""Tables (CSV, TSV) of files and labels: read as pandas and Pillow read them, whatever their columns and separators."""

import csv
from pathlib import Path
from typing import Any

import pandas
import pytest

from phalanx.data.sources.folders import FileSource
from tests.data.samples import assert_helpful
from tests.data.sources.lists.list_samples import (
    assert_same_as_pandas,
    assert_same_pixels,
    opened,
    refused,
    write_files,
    written,
)

NAMES = ["a.png", "b, with comma.png", "deep/c.png", 'd "quoted".png', "ünïcödé/猫 кот.png", "f.png"]
LABELS = ["ape", "great white shark", "ape", "žába, šedá", "猫", "great white shark"]


@pytest.fixture
def files(tmp_path: Path) -> Path:
    return write_files(tmp_path, NAMES)


def names_of(source: FileSource) -> list[str]:
    return [str(Path(source.name(i)).relative_to(source.root)) for i in range(len(source))]


def labels_of(source: FileSource) -> list[str]:
    return [source.classes[number] for number in source.labels.tolist()]


@pytest.mark.parametrize(
    ("file", "how"),
    [
        ("train.csv", {}),
        ("train.csv", {"sep": ";"}),
        ("train.csv", {"sep": "\t"}),
        ("train.csv", {"sep": "|"}),
        ("train.tsv", {"sep": "\t"}),
        ("train.tsv", {"sep": ","}),
        ("train.txt", {"sep": ","}),
        ("train.csv", {"quoting": csv.QUOTE_ALL}),
        ("train.csv", {"encoding": "utf-8-sig", "lineterminator": "\r\n"}),
        ("train.csv", {"encoding": "utf-16"}),
        ("train.csv", {"lineterminator": "\r"}),
        ("train.csv", {"header": False}),
        ("train.csv", {"header": False, "sep": ";", "encoding": "utf-8-sig"}),
        ("train.csv", {"index": True}),
    ],
)
def test_the_same_as_pandas(files: Path, file: str, how: dict[str, Any]) -> None:
    frame = pandas.DataFrame({"image": NAMES, "label": LABELS})
    frame.to_csv(files / file, **{"index": False, **how})
    source = opened(files / file)
    assert_same_as_pandas(source, frame, lambda row: files / row["image"], "label")


@pytest.mark.parametrize(
    "columns",
    [
        ("image", "label"),
        ("filename", "label"),
        ("img", "cls"),
        ("path", "class"),
        ("Image Index", "Finding Labels"),
        ("filepaths", "labels"),
        ("anything", "at all"),
    ],
)
@pytest.mark.parametrize("more", ["none", "numbers", "before"])
def test_columns_by_title_or_by_their_files(files: Path, columns: tuple[str, str], more: str) -> None:
    frame = pandas.DataFrame({columns[0]: NAMES, columns[1]: LABELS})
    if more == "numbers" and columns[1] != "at all":
        frame["width"], frame["age"] = range(6), [0.5, 1, 2, 3, 4, 5]
    if more == "before":
        frame = frame[[columns[1], columns[0]]]
    frame.to_csv(files / "all.csv", index=False)
    source = opened(files / "all.csv")
    assert_same_as_pandas(source, frame, lambda row: files / row[columns[0]], columns[1])
    assert source.notes[0].startswith(f"columns: image = {columns[0]!r}, label = {columns[1]!r} (4 classes)")
    assert ("not used: 'width', 'age'" in source.notes[0]) == ("width" in frame)


def test_columns_that_the_user_names(files: Path) -> None:
    text = "breed,file,mask,colour\n" + "".join(f"{i % 2},{name},a.png,{'rg'[i % 2]}\n" for i, name in enumerate("ab"))
    text = text.replace(",a,", ",a.png,").replace(",b,", ",f.png,")
    by_name = written(files / "x.csv", text, image_field="file", label_field="colour")
    assert (names_of(by_name), labels_of(by_name)) == (["a.png", "f.png"], ["r", "g"])
    by_number = written(files / "x.csv", text, image_field="2", label_field="3")
    assert (names_of(by_number), labels_of(by_number)) == (["a.png", "a.png"], ["r", "g"])
    without_header = written(files / "x.csv", text.partition("\n")[2], image_field="1", label_field="3")
    assert (names_of(without_header), labels_of(without_header)) == (["a.png", "f.png"], ["r", "g"])
    assert_helpful(refused(files / "x.csv", text, label_field="color"), "'color'", "3 'colour'", "did you mean colour")
    assert_helpful(refused(files / "x.csv", text, label_field="4"), "no column '4'", "0 'breed'")
    assert_helpful(refused(files / "x.csv", text, image_field="photo"), "data.image_field", "1 'file'")


@pytest.mark.parametrize(
    ("text", "titles"),
    [
        ("image,label\na.png,0\nf.png,1\n", True),
        ("id,level\na.png,0\nf.png,1\n", True),
        ("foto,Rasse\na.png,ape\nf.png,cat\n", True),  # no known word: only these cells name no file, and no label
        ("a.png,ape\nf.png,cat\n", False),
        ("a.png,label\nf.png,image\n", False),  # classes may be called so
        ("a.png,ape\nf.png,7\ndeep/c.png,8\n", False),  # the only label that is no number, but the image is there
        ("image label\na.png 0\nf.png 1\n", True),
        ("path\tlabel\na.png\tgreat white shark\nf.png\tape\n", True),
    ],
)
def test_header_or_data(files: Path, text: str, titles: bool) -> None:
    source = written(files / ("t.csv" if "," in text else "t.txt"), text)
    assert len(source) == text.count("\n") - titles
    assert names_of(source)[0] == "a.png"
    assert bool(source.notes) == titles


def test_a_missing_first_file_is_no_header(files: Path) -> None:
    rows = "".join("a.png,0\nf.png,1\n" for _ in range(100))
    source = written(files / "t.csv", f"gone.png,0\n{rows}")
    assert len(source) == 200
    assert "1 of 201 files" in source.notes[-1]
    source = written(files / "t.csv", f"gone,1\n{rows}")  # no ending, but a label that others have
    assert "1 of 201 files" in source.notes[-1]


def test_rows_without_content_and_cells_with_blanks(files: Path) -> None:
    source = written(files / "t.csv", '# made by hand\nimage , label\n\n a.png ,  ape\n,\n"f.png", cat ,,\n\r\n')
    assert (names_of(source), labels_of(source)) == (["a.png", "f.png"], ["ape", "cat"])


def test_commas_with_blanks_in_a_text_file(files: Path) -> None:
    source = written(files / "t.txt", "a.png, 3\nf.png, 0\n")
    assert (names_of(source), source.labels.tolist()) == (["a.png", "f.png"], [3, 0])


def test_lines_of_several_blanks(files: Path) -> None:
    """Lists of Caffe's kind, and MXNet's with blanks."""
    text = "a.png 1 7\nf.png 0 8\n"
    assert_helpful(refused(files / "t.txt", text), "label", "0 'a.png', 1 '1', 2 '7'", "data.label_field=1")
    source = written(files / "t.txt", text, label_field="1")
    assert (names_of(source), source.labels.tolist()) == (["a.png", "f.png"], [1, 0])
    source = written(files / "t.lst", "0 1 a.png\n1 0 f.png\n")
    assert (names_of(source), source.labels.tolist()) == (["a.png", "f.png"], [1, 0])
    error = refused(files / "t.csv", "500,375,a.png\n500,333,f.png\n")  # sizes, not MXNet's numbers
    assert_helpful(error, "label", "0 '500', 1 '375', 2 'a.png'")
    source = written(files / "t.txt", "3 a.png\n1 f.png\n")
    assert (names_of(source), source.labels.tolist()) == (["a.png", "f.png"], [3, 1])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("image,label\n", ["empty"]),
        ("image\na.png\nf.png\n", ["1 column"]),
        ("image,age,size\na.png,3,9\nf.png,5,8\n", ["0 'image', 1 'age', 2 'size'", "data.label_field=age (or size)"]),
        ("a.png,3,9\nf.png,5,8\n", ["first row is 0 'a.png'", "data.label_field=1"]),
        ("image,label\na.png,0\nf.png,0,1\n", ["line 3", "3 column"]),
        ("image,label\na.png,0\nf.png\n", ["line 3", "1 column"]),
        ("image,label\na.png,0\nf.png,\n", ["line 3", "no label"]),
        ("image,label\na.png,0.25\nf.png,0.5\n", ["line 2", "0.25", "whole numbers"]),
        ("image,label\na.png,0\nf.png,-1\n", ["line 3", "-1"]),
        ('image,label\na.png,"ape\nf.png,cat\n', ["quotes"]),
        ('image,label\na.png,"ape\nf.png,cat"\n', ["line", "not a class name"]),
        ("label," + ",".join(f"pixel{i}" for i in range(784)) + "\n5" + ",0" * 784 + "\n", ["pixels", "(785 in all)"]),
        ("emotion,pixels,Usage\n0,70 80 82,Training\n", ["holds pixels"]),
        ("code,weight,size\n7,3,4\n", ["no column", "names files", "data.root"]),
        ("image,label\n" + "".join(f"a.png,name{i}\n" for i in range(30)), ["label of its own", "data.label_field"]),
    ],
)
def test_tables_that_are_refused(files: Path, text: str, words: list[str]) -> None:
    assert_helpful(refused(files / "t.csv", text), "t.csv", *words)


def test_labels_in_another_encoding_are_refused(files: Path) -> None:
    (files / "t.csv").write_bytes("image,label\na.png,Käfer\nf.png,Käfer\n".encode("latin-1"))
    with pytest.raises(Exception, match="UTF-8"):
        opened(files / "t.csv")


def test_numbers_that_are_identifiers(files: Path) -> None:
    source = written(files / "t.csv", "image,landmark_id\na.png,70012\nf.png,1003\n")
    assert (source.classes, source.labels.tolist()) == (["1003", "70012"], [1, 0])
    assert "taken as names" in source.notes[1]


def test_numbers_with_gaps_are_told(files: Path) -> None:
    assert "start at 1: class 0 of 3" in written(files / "t.csv", "image,label\na.png,1\nf.png,2.0\n").notes[1]
    assert "2 classes have no images" in written(files / "t.csv", "image,label\na.png,1\nf.png,3\n").notes[1]


def test_files_with_different_labels_are_told(files: Path) -> None:
    source = written(files / "t.csv", "image,label\na.png,ape\nf.png,ape\na.png,cat\nf.png,ape\n")
    assert len(source) == 4
    assert "1 files are listed with different labels, such as a.png (ape, cat)" in source.notes[-1]


def test_known_classes(files: Path) -> None:
    source = written(files / "t.csv", "image,label\na.png,zebra\nf.png,0\n", ["ape", "zebra"])
    assert source.labels.tolist() == [1, 0]
    error = refused(files / "t.csv", "image,label\na.png,zebr\nf.png,0\n", ["ape", "zebra"])
    assert_helpful(error, "t.csv, line 2", "did you mean zebra")


def test_a_table_below_a_comment_and_a_name_with_a_hash(files: Path) -> None:
    write_files(files, ["#1.png"])
    source = written(files / "t.csv", "#1.png,comment\na.png,ape\n#1.png,cat\n")
    assert_same_pixels(source, [files / "a.png", files / "#1.png"])
