"""MNIST's idx files, plain and gzipped, whole and damaged."""

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest

from phalanx.data.base import Pixels
from phalanx.data.sources.idx import find_idx, open_idx
from phalanx.errors import UserError
from tests.data.samples import FixedViews, assert_helpful, noise

DEBIANS = Path("/usr/share/datasets/fashion-mnist")


def idx_bytes(values: Pixels) -> bytes:
    return struct.pack(f">HBB{values.ndim}I", 0, 8, values.ndim, *values.shape) + values.tobytes()


def write_idx(folder: Path, *, packed: bool) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for prefix, count in (("train", 12), ("t10k", 4)):
        labels = (np.arange(count) % 10).astype(np.uint8)
        for name, values in (("images-idx3", noise(count, 28, 28, seed=count)), ("labels-idx1", labels)):
            data = idx_bytes(values)
            file = folder / f"{prefix}-{name}-ubyte{'.gz' if packed else ''}"
            file.write_bytes(gzip.compress(data) if packed else data)
    return folder


@pytest.mark.parametrize("packed", [True, False])
def test_both_parts(tmp_path: Path, packed: bool) -> None:
    folder = write_idx(tmp_path / "fashion", packed=packed)
    train, val = open_idx(folder, "train", channels=None), open_idx(folder, "val", channels=None)
    assert (len(train), len(val), train.channels, train.image_size) == (12, 4, 1, 28)
    assert train.classes == val.classes == [str(i) for i in range(10)]
    pixels = val.read(np.arange(4), FixedViews(28), 0, replace_bad=True).images
    np.testing.assert_array_equal(pixels[..., 0], noise(4, 28, 28, seed=4))
    assert val.name(1) == "fashion val #1"
    assert open_idx(folder, "val", channels=3).channels == 3


def test_where_torchvision_puts_them(tmp_path: Path) -> None:
    write_idx(tmp_path / "MNIST" / "raw", packed=False)
    assert find_idx(tmp_path / "MNIST") == tmp_path / "MNIST" / "raw"
    assert find_idx(tmp_path) is None


def test_unpacked_but_still_called_gz(tmp_path: Path) -> None:
    folder = write_idx(tmp_path, packed=False)
    file = folder / "train-labels-idx1-ubyte"
    file.rename(folder / "train-labels-idx1-ubyte.gz")
    assert len(open_idx(folder, "train", channels=None)) == 12


@pytest.mark.skipif(not DEBIANS.is_dir(), reason="Debian's package dataset-fashion-mnist is not installed")
def test_debians_fashion_mnist() -> None:
    train, val = open_idx(DEBIANS, "train", channels=None), open_idx(DEBIANS, "val", channels=None)
    assert (len(train), len(val), train.mean) == (60_000, 10_000, (0.2846,))
    np.testing.assert_array_equal(np.bincount(val.labels), [1000] * 10)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    folder = write_idx(tmp_path, packed=False)
    (folder / "t10k-labels-idx1-ubyte").unlink()
    with pytest.raises(UserError) as caught:
        open_idx(folder, "val", channels=None)
    assert_helpful(caught.value, "t10k-labels-idx1-ubyte", "data.val")


@pytest.mark.parametrize(
    ("data", "word"),
    [
        (b"", "starts with nothing"),
        (b"\x00\x00\x08\x01" + bytes(8), "00 00 08 03"),
        (b"\x00\x00\x0d\x03" + bytes(12), "00 00 08 03"),
        (b"\x00\x00\x08\x03" + bytes(5), "inside its header"),
        (idx_bytes(noise(12, 28, 28))[:-1], "12×28×28"),
        (idx_bytes(noise(12, 28, 28)) + b"x", "9,409 bytes follow"),
        (b"\x00\x00\x08\x03" + b"\xff" * 12 + bytes(100), "100 bytes follow"),
        (idx_bytes(np.empty((0, 28, 28), dtype=np.uint8)), "0×28×28"),
        (gzip.compress(idx_bytes(noise(12, 28, 28)))[:-900], "does not unpack"),
        (b"\x1f\x8b" + b"nonsense" * 4, "does not unpack"),
    ],
)
def test_a_damaged_file_is_named_with_what_is_wrong(tmp_path: Path, data: bytes, word: str) -> None:
    folder = write_idx(tmp_path, packed=False)
    (folder / "train-images-idx3-ubyte").write_bytes(data)
    with pytest.raises(UserError) as caught:
        open_idx(folder, "train", channels=None)
    assert_helpful(caught.value, "train-images-idx3-ubyte", word)


def test_images_and_labels_of_other_numbers(tmp_path: Path) -> None:
    folder = write_idx(tmp_path, packed=False)
    (folder / "train-labels-idx1-ubyte").write_bytes(idx_bytes(np.zeros(11, dtype=np.uint8)))
    with pytest.raises(UserError) as caught:
        open_idx(folder, "train", channels=None)
    assert_helpful(caught.value, "12 images and 11 labels")


def rename(folder: Path, before: str, val: str = "test") -> Path:
    """Names as EMNIST has them."""
    for file in list(folder.iterdir()):
        file.rename(folder / f"{before}{file.name.replace('t10k', val)}")
    return folder


def test_other_names_with_something_before(tmp_path: Path) -> None:
    folder = rename(write_idx(tmp_path / "gzip", packed=True), "emnist-digits-")
    for path in (folder, tmp_path, folder / "emnist-digits-train-images-idx3-ubyte.gz"):
        train, val = open_idx(path, "train", channels=None), open_idx(path, "val", channels=None)
        assert (len(train), len(val), train.notes) == (12, 4, ())
    assert "idx files emnist-digits-* in" in train.description
    rename(write_idx(tmp_path / "k", packed=False), "kmnist_", "t10k")
    assert len(open_idx(tmp_path / "k", "val", channels=None)) == 4


def test_letters_count_from_one(tmp_path: Path) -> None:
    folder = rename(write_idx(tmp_path, packed=False), "emnist-letters-")
    labels = np.array([1, 2, 3] * 4, dtype=np.uint8)
    (folder / "emnist-letters-train-labels-idx1-ubyte").write_bytes(idx_bytes(labels))
    (folder / "emnist-letters-test-labels-idx1-ubyte").write_bytes(idx_bytes(labels[:4]))
    train = open_idx(folder, "train", channels=None)
    assert (train.labels.tolist(), train.classes) == (labels.tolist(), ["0", "1", "2", "3"])
    assert train.notes == ("labels begin at 1: class 0 has no samples",)
    (folder / "emnist-letters-mapping.txt").write_text("1 65 97\n2 66 98\n3 67 99\n")
    assert open_idx(folder, "val", channels=None).classes == ["0", "A", "B", "C"]


def test_several_datasets_in_one_folder_are_not_guessed_about(tmp_path: Path) -> None:
    rename(write_idx(tmp_path / "a", packed=False), "emnist-letters-")
    rename(write_idx(tmp_path / "b", packed=False), "emnist-digits-")
    for file in (tmp_path / "b").iterdir():
        file.rename(tmp_path / "a" / file.name)
    with pytest.raises(UserError) as caught:
        open_idx(tmp_path / "a", "train", channels=None)
    assert_helpful(caught.value, "more than one", "emnist-digits-, emnist-letters-", "emnist-digits-train")
    assert len(open_idx(tmp_path / "a" / "emnist-letters-train-labels-idx1-ubyte", "val", channels=None)) == 4


def test_labels_of_several_numbers_and_images_in_colour(tmp_path: Path) -> None:
    """QMNIST's labels are eight 32-bit numbers an image, of which the first is the class."""
    rows = np.arange(24, dtype=">i4").reshape(3, 8)
    labels = struct.pack(">HBB2I", 0, 0x0C, 2, 3, 8) + rows.tobytes()
    (tmp_path / "qmnist-train-labels-idx2-int").write_bytes(labels)
    colour = noise(3, 5, 6, 3)
    (tmp_path / "qmnist-train-images-idx4-ubyte").write_bytes(idx_bytes(colour))
    source = open_idx(tmp_path, "train", channels=None)
    assert source.labels.tolist() == [0, 8, 16]
    np.testing.assert_array_equal(source.images, colour)


def test_files_in_folders_of_their_names(tmp_path: Path) -> None:
    """As Kaggle's archive of MNIST unpacks."""
    flat = write_idx(tmp_path / "flat", packed=False)
    for file in flat.iterdir():
        (tmp_path / "nested" / file.name).mkdir(parents=True)
        file.rename(tmp_path / "nested" / file.name / file.name)
    assert len(open_idx(tmp_path / "nested", "train", channels=None)) == 12
