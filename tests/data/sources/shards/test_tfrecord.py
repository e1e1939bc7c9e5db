"""TFRecord: checksums, fields of the usual writers, labels of every kind."""

import gzip
import os
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from phalanx.data.decode.images import BadImage
from phalanx.data.sources.shards.shard_source import ShardSource
from phalanx.data.sources.shards.tfrecord import listed_classes, open_tfrecord
from phalanx.errors import UserError
from tests.data.samples import REAL, FixedViews, assert_helpful, needs_real_data
from tests.data.shard_files import Values, crc32c, example, masked, pictures, tf_record, wanted, write_tfrecord


def opened(*paths: Path, **settings: Any) -> ShardSource:
    return open_tfrecord(list(paths), wanted(**settings))


def refused(*paths: Path, **settings: Any) -> UserError:
    with pytest.raises(UserError) as caught:
        opened(*paths, **settings)
    return caught.value


def write(path: Path, *examples: dict[str, Values]) -> Path:
    path.write_bytes(b"".join(tf_record(example(features)) for features in examples))
    return path


def slim(image: bytes, label: int, synset: str, text: str) -> dict[str, Values]:
    """What TF-Slim writes of an ImageNet image, shortened."""
    return {
        "image/height": [8],
        "image/class/label": [label],
        "image/class/synset": synset.encode(),
        "image/class/text": text.encode(),
        "image/object/bbox/xmin": [0.25, 0.5],
        "image/encoded": image,
    }


def test_images_and_labels_in_order(tmp_path: Path) -> None:
    samples = pictures(7)
    path = write_tfrecord(tmp_path / "a.tfrecord", samples)
    source = opened(path)
    assert [source.encoded(i) for i in range(7)] == [image for image, _ in samples]
    assert source.labels.tolist() == [label for _, label in samples]
    assert (source.classes, source.notes) == (["0", "1", "2"], ())
    assert source.name(0) == f"{path} #0 (offset 0)"
    read = source.read(np.arange(7), FixedViews(8), 0, replace_bad=False)
    assert (len(read.images), read.bad) == (7, [])


def test_slim_labels_start_at_one(tmp_path: Path) -> None:
    path = write(
        tmp_path / "train-00000-of-00001",
        slim(b"two", 2, "n01443537", "goldfish"),
        slim(b"one", 1, "n01440764", "tench"),
        slim(b"four", 4, "n01491361", "tiger shark"),
    )
    source = opened(path)
    assert source.classes == ["n01440764", "n01443537", "3", "n01491361"]
    assert source.labels.tolist() == [1, 0, 3]
    assert source.encoded(2) == b"four"
    assert "labels start at 1 (0 is TF-Slim's background)" in source.notes[0]


def test_slim_labels_from_zero(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tfrecord", slim(b"one", 0, "", "roses"), slim(b"two", 1, "", "tulips"))
    source = opened(path)
    assert (source.labels.tolist(), source.notes) == ([0, 1], ())
    assert source.classes == ["roses", "tulips"]


def test_slim_numbers_go_before_names_that_are_not_unique(tmp_path: Path) -> None:
    """ImageNet has two classes called crane."""
    plain = [{k: v for k, v in slim(b"i", n, "", "crane").items() if k != "image/class/synset"} for n in (1, 2)]
    source = opened(write(tmp_path / "a.tfrecord", *plain))
    assert (source.classes, source.labels.tolist()) == (["1", "2"], [0, 1])
    assert "do not match one to one" in source.notes[0]


def test_classes_over_several_files(tmp_path: Path) -> None:
    first = write(tmp_path / "a.tfrecord", slim(b"one", 1, "n1", "a"))
    second = write(tmp_path / "b.tfrecord", slim(b"two", 2, "n2", "b"), slim(b"one", 1, "n1", "a"))
    source = opened(first, second)
    assert (source.classes, source.labels.tolist()) == (["n1", "n2"], [0, 1, 0])


@pytest.mark.parametrize(
    ("label", "classes", "number"),
    [
        ([2], ["0", "1", "2"], 2),
        ([2.0], ["0", "1", "2"], 2),
        (b"2", ["0", "1", "2"], 2),
        (b"tabby cat", ["tabby cat"], 0),
    ],
)
def test_labels_of_every_kind(tmp_path: Path, label: Values, classes: list[str], number: int) -> None:
    source = opened(write(tmp_path / "a.tfrecord", {"image": b"i", "label": label}))
    assert (source.classes, source.labels.tolist()) == (classes, [number])


def test_labels_of_several_values(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tfrecord", {"image": b"i", "label": [4, 1]})
    assert_helpful(refused(path), "offset 0", "2 values (4, 1)", "data.label_element")
    assert opened(path, label_element=1).labels.tolist() == [1]


def test_numbers_and_names_are_not_mixed(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tfrecord", {"image": b"i", "label": b"3"}, {"image": b"i", "label": b"cat"})
    assert_helpful(refused(path), "numbers and names as labels", "3", "'cat'")


def test_other_fields_by_setting(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tfrecord", {"jpeg": b"i", "target": [1], "score": [0.5], "none": []})
    assert_helpful(refused(path), "no image under image/encoded or image", "'jpeg' (bytes)", "'target' (integers)")
    assert_helpful(refused(path, image_field="jpeg"), "no label", "data.label_field")
    assert_helpful(
        refused(path, image_field="score", label_field="target"), "'score'", "lists floats", "data.image_field"
    )
    source = opened(path, image_field="jpeg", label_field="target")
    assert (source.encoded(0), source.labels.tolist()) == (b"i", [1])


def test_what_records_lack(tmp_path: Path) -> None:
    good: dict[str, Values] = {"image": b"i", "label": [0]}
    path = write(tmp_path / "a.tfrecord", good, {"label": [1]}, {"image": b"j", "label": [0]})
    source = opened(path)
    assert ([source.encoded(i) for i in range(2)], source.notes) == (
        [b"i", b"j"],
        (f"{path}: 1 records without an image are left out",),
    )
    offset = len(tf_record(example(good)))
    for label in ([], [-1], b"\xff\xfe", b" "):
        path = write(tmp_path / "b.tfrecord", good, {"image": b"j", "label": label})
        assert_helpful(refused(path), f"the label of the record at offset {offset:,}", str(path))
    path = write(tmp_path / "b.tfrecord", good, {"image": b"j"})
    assert_helpful(refused(path), f"offset {offset:,}", "there is none")
    path.write_bytes(tf_record(b"\xff\xff"))
    assert_helpful(refused(path), "damaged at offset 0", "not a tf.train.Example")


def test_class_names_of_tfds_and_slim(tmp_path: Path) -> None:
    path = write_tfrecord(tmp_path / "flowers-train.tfrecord-00000-of-00001", pictures(4, classes=2))
    (tmp_path / "labels.txt").write_text("0:daisy\n1:rose\n")
    assert opened(path).classes == ["daisy", "rose"]
    (tmp_path / "label.labels.txt").write_text("dandelion\ntulip\nsunflower\n")
    assert opened(path).classes == ["dandelion", "tulip", "sunflower"]
    (tmp_path / "label.labels.txt").write_text("dandelion\n")
    assert_helpful(refused(path), "has the label 1", "names 1")
    (tmp_path / "features").mkdir()
    (tmp_path / "label.labels.txt").rename(tmp_path / "features" / "kind.labels.txt")
    assert listed_classes(tmp_path, "kind") == ["dandelion"]
    (tmp_path / "labels.txt").write_text("some other text\n")
    assert listed_classes(tmp_path, "label") is None


def test_a_flipped_bit_in_an_image_is_a_bad_image(tmp_path: Path) -> None:
    samples = pictures(6)
    path = write_tfrecord(tmp_path / "a.tfrecord", samples)
    data = bytearray(path.read_bytes())
    third = data.index(samples[2][0])
    data[third + 40] ^= 4
    path.write_bytes(data)
    source = opened(path)
    offset = len(b"".join(tf_record(example({"label": [label], "image": image})) for image, label in samples[:2]))
    assert source.notes == (f"{path}: 1 records fail their checksum and are bad images: at offset {offset:,}",)
    assert len(source) == 6
    read = source.read(np.arange(6), FixedViews(8), 0, replace_bad=True)
    assert (read.indices.tolist(), read.bad) == ([0, 1, 3, 3, 4, 5], [(2, "its record fails its checksum")])


def test_a_bit_that_flips_after_indexing(tmp_path: Path) -> None:
    path = write_tfrecord(tmp_path / "a.tfrecord", pictures(2))
    source = opened(path)
    status = path.stat()
    for place, words in ((40, "fails its checksum"), (3, "another length")):
        with path.open("r+b") as file:  # with the size and time that it had, as a failing disk would give it
            file.seek(place)
            byte = file.read(1)[0]
            file.seek(place)
            file.write(bytes([byte ^ 1]))
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
        with pytest.raises(BadImage, match=words):
            source.encoded(0)
    assert source.encoded(1) == pictures(2)[1][0]


def test_a_first_record_that_fails_its_checksum_is_left_out(tmp_path: Path) -> None:
    path = write_tfrecord(tmp_path / "a.tfrecord", pictures(3))
    data = bytearray(path.read_bytes())
    data[60] ^= 1
    path.write_bytes(data)
    source = opened(path)
    assert len(source) == 2
    assert "1 records fail their checksum" in source.notes[0]


def test_a_damaged_length_is_named(tmp_path: Path) -> None:
    first = len(tf_record(example({"label": [0], "image": pictures(3)[0][0]})))
    whole = write_tfrecord(tmp_path / "a.tfrecord", pictures(3)).read_bytes()
    path = tmp_path / "b.tfrecord"
    for place in (0, 7, 8, 11):
        data = bytearray(whole)
        data[first + place] ^= 1
        path.write_bytes(data)
        assert_helpful(refused(path), f"damaged at offset {first:,}", "checksum", "1 samples before it are good")
    path.write_bytes(whole[: first + 40])
    assert_helpful(refused(path), f"damaged at offset {first:,}", "the file ends 40 bytes into a record")
    assert len(opened(path, salvage=True)) == 1


def test_a_right_checksum_does_not_make_a_length_true(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    for length in (2**63, 2**40, 2**29):
        number = struct.pack("<Q", length)
        path.write_bytes(number + masked(crc32c(number)) + bytes(100))
        assert_helpful(refused(path), "damaged at offset 0")


def test_gzipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    samples = pictures(3)
    plain = opened(write_tfrecord(tmp_path / "a.tfrecord", samples))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    packed = tmp_path / "a.tfrecord.gz"
    packed.write_bytes(gzip.compress((tmp_path / "a.tfrecord").read_bytes()))
    source = opened(packed)
    assert [source.encoded(i) for i in range(3)] == [plain.encoded(i) for i in range(3)]
    assert source.name(0) == f"{packed} #0 (offset 0)"
    assert "is compressed (unpacked shards save the time) and is read through a copy in" in source.notes[0]


@needs_real_data
def test_real_files(tmp_path: Path) -> None:
    for name, count in (("tfds_dmlab/dmlab-train.tfrecord-00000-of-00001", 2), ("tfx/cifar10_test.tfrecord", 128)):
        link = tmp_path / Path(name).name
        link.symlink_to(REAL / "foreign/tfrecord" / name)
        source = opened(link)
        read = source.read(np.arange(count), FixedViews(32), 0, replace_bad=False)
        assert (len(source), len(read.images), read.bad) == (count, count, [])
    assert source.classes == [str(i) for i in range(10)]
