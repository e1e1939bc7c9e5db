"""The same images, however they are kept, give the same classes, splits and pixels."""

import importlib.util
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from phalanx.config.schema import AugmentConfig, DataConfig
from phalanx.data.augment.framing import train_framing
from phalanx.data.base import Pixels
from phalanx.data.sources.arrays import array_source
from phalanx.data.sources.holdout import holdout_indices
from phalanx.data.sources.open import Splits, open_data
from tests.data.pack.packs import FORMS, pack_folder
from tests.data.samples import noise
from tests.data.shard_files import (
    Sample,
    example,
    pictures,
    tf_record,
    wds_members,
    write_rec,
    write_tar,
    write_tfrecord,
)
from tests.data.sources.shards.test_huggingface import save

CLASSES = ["ape", "cat", "dog"]


def write_folders(folder: Path, samples: list[Sample]) -> Path:
    for number, (image, label) in enumerate(samples):
        path = folder / CLASSES[label] / f"{number:03d}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(image)
    return folder


def write_table(folder: Path, samples: list[Sample]) -> Path:
    """Kaggle's layout: ids, and the images in train/."""
    (folder / "train").mkdir(parents=True)
    rows = ["id,width,breed\n"]
    for number, (image, label) in enumerate(samples):
        (folder / "train" / f"{number:03d}.jpg").write_bytes(image)
        rows.append(f"{number:03d},32,{CLASSES[label]}\n")
    (folder / "labels.csv").write_text("".join(rows))
    return folder / "labels.csv"


def write_one_hot(folder: Path, samples: list[Sample]) -> Path:
    folder.mkdir()
    rows = [f"image,{','.join(CLASSES)}\n"]
    for number, (image, label) in enumerate(samples):
        (folder / f"{number}.jpg").write_bytes(image)
        rows.append(f"{number}.jpg,{','.join('1.0' if other == label else '0.0' for other in range(3))}\n")
    (folder / "truth.csv").write_text("".join(rows))
    return folder / "truth.csv"


def write_recs(folder: Path, samples: list[Sample]) -> Path:
    folder.mkdir()
    for name, part in (("a", samples[:10]), ("b", samples[10:])):
        write_rec(folder / f"{name}.rec", part)
        lines = [f"{i}\t{label}.000000\t{CLASSES[label]}/{i}.jpg\n" for i, (_, label) in enumerate(part)]
        (folder / f"{name}.lst").write_text("".join(lines))
    return folder


def write_tfds(folder: Path, samples: list[Sample]) -> Path:
    folder.mkdir()
    for number in range(3):
        write_tfrecord(folder / f"x-train.tfrecord-{number:05d}-of-00003", samples[8 * number : 8 * number + 8])
    (folder / "label.labels.txt").write_text("\n".join(CLASSES))
    return folder


def write_slim(folder: Path, samples: list[Sample]) -> Path:
    folder.mkdir()
    records = (
        tf_record(
            example(
                {
                    "image/class/label": [label + 1],
                    "image/class/synset": CLASSES[label].encode(),
                    "image/encoded": image,
                }
            )
        )
        for image, label in samples
    )
    (folder / "train-00000-of-00001").write_bytes(b"".join(records))
    return folder


def write_tars(folder: Path, samples: list[Sample]) -> Path:
    folder.mkdir()
    members = [
        member for i, (image, label) in enumerate(samples) for member in wds_members(str(i), image, CLASSES[label])
    ]
    write_tar(folder / "000.tar", members[:20])
    write_tar(folder / "001.tar", members[20:])
    return folder


def write_huggingface(folder: Path, samples: list[Sample]) -> Path:
    rows = [{"image": {"bytes": image, "path": None}, "label": label} for image, label in samples]
    features = {"image": {"_type": "Image"}, "label": {"_type": "ClassLabel", "names": CLASSES}}
    return save(folder, rows[:12], rows[12:], features=features)


def write_parquet(folder: Path, samples: list[Sample]) -> Path:
    """Compressed, in row groups of five, without any description: class names are the labels."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    images, names = [image for image, _ in samples], [CLASSES[label] for _, label in samples]
    folder.mkdir()
    for number, part in enumerate((slice(0, 12), slice(12, 24))):
        table = pa.table({"img": images[part], "class": names[part]})
        pq.write_table(table, folder / f"train-{number:05d}-of-00002.parquet", row_group_size=5, compression="zstd")
    return folder


WRITERS: list[Callable[[Path, list[Sample]], Path]] = [
    *(write_recs, write_tfds, write_slim, write_tars, write_table, write_one_hot)
]
if importlib.util.find_spec("pyarrow"):
    WRITERS += [write_huggingface, write_parquet]


def packed_as(form: str) -> Callable[[Path, list[Sample]], Path]:
    """Class folders as `phalanx data pack` writes them anew."""

    def write(folder: Path, samples: list[Sample]) -> Path:
        pack_folder(write_folders(folder.with_name("source"), samples), folder, form, shards=3)
        return folder

    return write


# `raw` is decoded exactly, the others fast.
WRITERS += [packed_as(form) for form in FORMS if form != "raw"]


def opened(folder: Path) -> Splits:
    return open_data(DataConfig(source=str(folder), val_share=0.25), threads=2)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.mark.parametrize("write", WRITERS)
def test_the_same_as_class_folders(tmp_path: Path, write: Callable[[Path, list[Sample]], Path]) -> None:
    samples = pictures(24)
    expected, found = opened(write_folders(tmp_path / "folders", samples)), opened(write(tmp_path / "other", samples))
    framing = train_framing(AugmentConfig(crop="random-resized", flip=0.5), DataConfig(), 16, 7, expected.train)
    for one, other in ((expected.train, found.train), (expected.val, found.val)):
        assert (other.classes, other.labels.tolist()) == (one.classes, one.labels.tolist())
        assert (other.mean, other.std, other.image_size, other.channels) == (one.mean, one.std, one.image_size, 3)
        order = np.random.default_rng(0).permutation(len(one))
        for epoch in range(2):
            wanted, given = (source.read(order, framing, epoch, replace_bad=True) for source in (one, other))
            np.testing.assert_array_equal(given.images, wanted.images)
            np.testing.assert_array_equal(given.labels, wanted.labels)


def write_raw_examples(folder: Path, images: Pixels, labels: list[int]) -> Path:
    records = ({"image_raw": image.tobytes(), "label": [label]} for image, label in zip(images, labels, strict=True))
    (folder / "a.tfrecord").write_bytes(b"".join(tf_record(example(record)) for record in records))
    return folder


def write_float_examples(folder: Path, images: Pixels, labels: list[int]) -> Path:
    records = (
        {"image": (image / 255).astype(np.float32).ravel().tolist(), "label": [label], "height": [12], "width": [12]}
        for image, label in zip(images, labels, strict=True)
    )
    (folder / "a.tfrecord").write_bytes(b"".join(tf_record(example(record)) for record in records))
    return folder


def write_binary(folder: Path, images: Pixels, labels: list[int]) -> Path:
    planes = images.transpose(0, 3, 1, 2).reshape(len(images), -1)
    np.concatenate([np.array(labels, np.uint8)[:, None], planes], axis=1).tofile(folder / "pictures.bin")
    return folder


def write_lists(folder: Path, images: Pixels, labels: list[int]) -> Path:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"pixels": images.tolist(), "label": labels}), folder / "a.parquet")
    return folder


RAW_WRITERS: list[Callable[[Path, Pixels, list[int]], Path]] = [write_raw_examples, write_float_examples, write_binary]
if importlib.util.find_spec("pyarrow"):
    RAW_WRITERS.append(write_lists)


@pytest.mark.parametrize("write", RAW_WRITERS)
def test_pixels_are_the_same_however_they_are_kept(tmp_path: Path, write: Callable[..., Path]) -> None:
    images, labels = noise(300, 12, 12, 3), [i % 3 for i in range(300)]
    (tmp_path / "other").mkdir()
    found = opened(write(tmp_path / "other", images, labels)).train
    rows = np.setdiff1d(np.arange(300), holdout_indices(np.array(labels), 0.25))
    expected = array_source("", "", images, np.array(labels), ["0", "1", "2"], image_size=12, channels=None)
    one = expected.subset(rows)
    assert (found.classes, found.labels.tolist()) == (one.classes, one.labels.tolist())
    assert (found.mean, found.std, found.image_size, found.channels) == (one.mean, one.std, 12, 3)
    assert found.extent == one.extent == (12, 12)
    framing = train_framing(AugmentConfig(crop="random-resized", flip=0.5), DataConfig(), 16, 7, one)
    order = np.random.default_rng(0).permutation(len(one))
    wanted, given = (source.read(order, framing, 1, replace_bad=True) for source in (one, found))
    np.testing.assert_array_equal(given.images, wanted.images)
    np.testing.assert_array_equal(given.labels, wanted.labels)
