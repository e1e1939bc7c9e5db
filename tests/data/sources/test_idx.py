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
        (idx_bytes(noise(12, 28, 28)) + b"x", "9,409 follow"),
        (b"\x00\x00\x08\x03" + b"\xff" * 12 + bytes(100), "100 follow"),
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
