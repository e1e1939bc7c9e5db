"""MXNet's RecordIO: records of one part and of several, labels of one value and of several."""

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from phalanx.data.sources.shards.recordio import folders_of_labels, open_recordio
from phalanx.data.sources.shards.shard_source import ShardSource
from phalanx.errors import UserError
from tests.data.samples import REAL, FixedViews, assert_helpful, needs_real_data
from tests.data.shard_files import MAGIC, pictures, rec_image, rec_record, wanted, write_rec


def opened(*paths: Path, **settings: Any) -> ShardSource:
    return open_recordio(list(paths), wanted(**settings))


def refused(*paths: Path, **settings: Any) -> UserError:
    with pytest.raises(UserError) as caught:
        opened(*paths, **settings)
    return caught.value


def test_images_and_labels_in_order(tmp_path: Path) -> None:
    samples = pictures(7)
    source = opened(write_rec(tmp_path / "a.rec", samples))
    assert [source.encoded(i) for i in range(7)] == [image for image, _ in samples]
    assert source.labels.tolist() == [label for _, label in samples]
    assert source.classes == ["0", "1", "2"]
    assert source.description == f"RecordIO {tmp_path / 'a.rec'}, 7 images in 3 classes"
    second = len(rec_image(*samples[0]))
    assert source.name(1) == f"{tmp_path / 'a.rec'} #1 (offset {second})"
    read = source.read(np.arange(7), FixedViews(8), 0, replace_bad=False)
    assert (len(read.images), read.bad, source.image_size) == (7, [], 224)


def test_several_files_are_one_dataset(tmp_path: Path) -> None:
    samples = pictures(6)
    paths = [write_rec(tmp_path / f"{i}.rec", samples[2 * i : 2 * i + 2]) for i in range(3)]
    source = opened(*paths)
    assert [source.encoded(i) for i in range(6)] == [image for image, _ in samples]
    assert [source.name(i).partition(" (")[0] for i in (0, 3, 5)] == [
        f"{paths[0]} #0",
        f"{paths[1]} #1",
        f"{paths[2]} #1",
    ]
    assert source.description.startswith(f"3 RecordIO files ({paths[0]} …), 6 images")


@pytest.mark.parametrize(
    "image",
    [
        MAGIC,
        MAGIC * 3,
        b"abcd" + MAGIC + b"efgh",
        b"abcd" + MAGIC + b"ef",
        b"ab" + MAGIC + b"cd",  # not at a multiple of 4: nothing is cut
        MAGIC + b"middle.." + MAGIC + MAGIC + b"x",
        b"abcd" + MAGIC[:3],
    ],
)
def test_a_magic_number_in_the_data(tmp_path: Path, image: bytes) -> None:
    path = tmp_path / "a.rec"
    path.write_bytes(rec_image(b"first", 1) + rec_image(image, 0) + rec_image(b"last", 2))
    source = opened(path)
    assert [source.encoded(i) for i in range(3)] == [b"first", image, b"last"]
    assert source.labels.tolist() == [1, 0, 2]


def test_a_magic_number_in_the_header(tmp_path: Path) -> None:
    path = tmp_path / "a.rec"
    identity = struct.unpack("<Q", MAGIC + MAGIC)[0]
    path.write_bytes(rec_image(b"image", 4, identity))
    assert (opened(path).encoded(0), opened(path).labels.tolist()) == (b"image", [4])


def test_labels_of_several_values(tmp_path: Path) -> None:
    path = tmp_path / "a.rec"
    path.write_bytes(rec_image(b"one", [4.0, 2.0, 0.5]) + rec_image(b"two", [1.0, 0.0, 0.5, 7.0]))
    assert_helpful(refused(path), "offset 0", "3 values (4, 2, 0.5)", "data.label_element")
    source = opened(path, label_element=1)
    assert (source.labels.tolist(), source.encoded(0), source.encoded(1)) == ([2, 0], b"one", b"two")
    assert_helpful(refused(path, label_element=3), "offset 0", "3 values", "data.label_element")
    assert_helpful(refused(path, label_element=2), "0.5 is not a whole number")
    single = tmp_path / "b.rec"
    single.write_bytes(rec_image(b"one", [3.0]))
    assert opened(single).labels.tolist() == [3], "a vector of one value is a label"


@pytest.mark.parametrize(
    ("label", "words"),
    [
        (1.5, "1.5 is not a whole number"),
        (-1.0, "-1 is not between"),
        (float("nan"), "nan"),
        (1e9, "not between 0 and"),
    ],
)
def test_labels_that_are_no_classes(tmp_path: Path, label: float, words: str) -> None:
    path = tmp_path / "a.rec"
    path.write_bytes(rec_image(b"one", 1) + rec_image(b"two", label))
    assert_helpful(refused(path), str(path), "offset 36", words)


def test_records_without_an_image(tmp_path: Path) -> None:
    path = tmp_path / "a.rec"
    path.write_bytes(rec_image(b"", [8.0, 9.0]) + rec_image(b"face", 5) + rec_image(b"", [2.0, 3.0]))
    source = opened(path)
    assert (source.labels.tolist(), source.notes) == ([5], (f"{path}: 2 records without an image are left out",))


def test_class_names_from_the_list_beside(tmp_path: Path) -> None:
    path = write_rec(tmp_path / "a.rec", pictures(6))
    names = ["tench", "cat", "dog"]
    lines = [f"{i}\t{label}.000000\ttrain/{names[label]}/{i}.jpg\n" for i, (_, label) in enumerate(pictures(6))]
    listing = tmp_path / "a.lst"
    listing.write_text("".join(lines))
    assert opened(path).classes == names
    listing.write_text("".join(lines) + "6\t0.0\tdog/6.jpg\n")
    assert opened(path).classes == ["0", "1", "2"], "the list has changed, and two labels are called dog"
    listing.write_text("".join(lines[:4]))
    assert opened(path).classes == ["0", "1", "2"], "nothing names the third"


@pytest.mark.parametrize(
    ("lines", "folders"),
    [
        (b"0\t1\ta/x.jpg\n1\t0\tb/y.jpg\n", {1: "a", 0: "b"}),
        (b"0\t1\tx.jpg\n", {}),
        (b"0\t1\t2\ta/x.jpg\n", {}),
        (b"0\tone\ta/x.jpg\n", {}),
        (b"0\t1\ta/x.jpg\n1\t1\tb/y.jpg\n", {}),
        (b"0\t1\ta/x.jpg\n1\t2\ta/y.jpg\n", {}),
        (b"nonsense\n", {}),
    ],
)
def test_lists(lines: bytes, folders: dict[int, str]) -> None:
    assert folders_of_labels(lines.splitlines(keepends=True)) == folders


def test_numbers_stand_for_known_names(tmp_path: Path) -> None:
    path = write_rec(tmp_path / "val.rec", pictures(4, classes=2))
    source = open_recordio([path], wanted(classes=["ape", "cat", "dog"]))
    assert (source.classes, source.labels.tolist()) == (["ape", "cat", "dog"], [0, 0, 1, 1])
    assert "matched by number: 0 is ape" in source.notes[0]
    assert open_recordio([path], wanted(classes=["1", "10", "2"])).classes == ["0", "1"]


def test_a_file_that_is_cut_off(tmp_path: Path) -> None:
    whole = write_rec(tmp_path / "a.rec", pictures(3)).read_bytes()
    second = len(rec_image(*pictures(3)[0]))
    third = second + len(rec_image(*pictures(3)[1]))
    path = tmp_path / "cut.rec"
    for length in (third + 1, third + 7, third + 8, third + 50, len(whole) - 5):
        path.write_bytes(whole[:length])
        assert_helpful(refused(path), "cut.rec", f"offset {third:,}", "2 samples before it are good", "salvage")
    source = opened(path, salvage=True)
    assert len(source) == 2
    assert f"damaged at offset {third:,}" in source.notes[0]
    path.write_bytes(whole[:third])
    assert len(opened(path)) == 2, "nothing tells that there were more"
    path.with_suffix(".idx").write_text(f"0\t0\n1\t{second}\n2\t{third}\n")
    assert_helpful(refused(path), "cut.idx lists 1 records after that", f"offset {third:,}")


def test_damage_in_the_middle(tmp_path: Path) -> None:
    whole = bytearray(write_rec(tmp_path / "a.rec", pictures(3)).read_bytes())
    second = len(rec_image(*pictures(3)[0]))
    whole[second] ^= 1
    path = tmp_path / "b.rec"
    path.write_bytes(whole)
    assert_helpful(refused(path), f"offset {second:,}", "a record should begin here")


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (MAGIC + struct.pack("<I", 0x1FFFFFFF) + bytes(100), "ends 100 bytes into its 536,870,911"),
        (MAGIC + struct.pack("<I", 4 << 29), "should begin here"),
        (MAGIC + struct.pack("<I", 2 << 29), "without the first one"),
        (MAGIC + struct.pack("<I", 1 << 29) + rec_record(b"x"), "has no last part"),
        (MAGIC + struct.pack("<I", 1 << 29), "ends 0 bytes into a record's header"),
        (rec_record(struct.pack("<IfQQ", 2**32 - 1, 0, 0, 0) + b"image"), "cannot hold 4,294,967,295 labels"),
        (rec_record(b"short"), "cannot hold"),
        (b"no record at all", "should begin here"),
    ],
)
def test_lengths_are_checked_before_they_are_used(tmp_path: Path, data: bytes, words: str) -> None:
    (tmp_path / "a.rec").write_bytes(data)
    assert_helpful(refused(tmp_path / "a.rec"), "a.rec is damaged at offset", words)


@needs_real_data
def test_real_files(tmp_path: Path) -> None:
    faces, detection = tmp_path / "train.rec", tmp_path / "val.rec"
    for link, folder in ((faces, "FaceDetection"), (detection, "Image-detect")):
        for ending in (".rec", ".lst", ".idx"):
            link.with_suffix(ending).symlink_to(REAL / "foreign/rec" / folder / link.with_suffix(ending).name)
    source = opened(faces)
    assert (len(source), set(source.labels.tolist())) == (1632, {0})
    read = source.read(np.arange(0, 1632, 16), FixedViews(64), 0, replace_bad=False)
    assert (len(read.images), read.bad) == (102, [])
    assert_helpful(refused(detection), "19 values (4, 5, 768, 576, 0", "data.label_element")
    source = opened(detection, label_element=4)
    read = source.read(np.arange(4), FixedViews(64), 0, replace_bad=False)
    assert (len(source), len(read.images), read.bad) == (4, 4, [])
    assert source.name(3).endswith("(offset 491604)")
