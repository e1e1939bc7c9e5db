"""The same images, however they are kept, give the same classes, splits and pixels."""

import importlib.util
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from phalanx.config.schema import AugmentConfig, DataConfig
from phalanx.data.augment.framing import train_framing
from phalanx.data.sources.open import Splits, open_data
from tests.data.pack.packs import FORMS, pack_folder
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


def packed_as(form: str) -> Callable[[Path, list[Sample]], Path]:
    """Class folders as `phalanx data pack` writes them anew."""

    def write(folder: Path, samples: list[Sample]) -> Path:
        pack_folder(write_folders(folder.with_name("source"), samples), folder, form, shards=3)
        return folder

    return write


WRITERS: list[Callable[[Path, list[Sample]], Path]] = [write_recs, write_tfds, write_slim, write_tars]
if importlib.util.find_spec("pyarrow"):
    WRITERS.append(write_huggingface)
# Where Parquet is read, it belongs into FORMS of tests/data/pack/packs.py. `raw` is decoded exactly, the others fast.
WRITERS += [packed_as(form) for form in FORMS if form != "raw"]


def opened(folder: Path) -> Splits:
    return open_data(DataConfig(source=str(folder), val_share=0.25), threads=2)


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
