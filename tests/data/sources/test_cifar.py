"""CIFAR in binary form, made here and by others."""

from pathlib import Path

import numpy as np
import pytest

from phalanx.data.sources.cifar import open_cifar
from phalanx.errors import UserError
from tests.data.samples import REAL, FixedViews, assert_helpful, needs_real_data, noise

NAMES_10 = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]


def write_cifar10(folder: Path) -> Path:
    """Five files of two records and one of three; the labels count up."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "batches.meta.txt").write_text("\n".join(NAMES_10) + "\n\n")
    for i, name in enumerate([*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]):
        records = noise(3 if name == "test_batch" else 2, 3073, seed=i)
        records[:, 0] = (np.arange(len(records)) + 2 * i) % 10
        records.tofile(folder / f"{name}.bin")
    return folder


@pytest.fixture
def cifar10(tmp_path: Path) -> Path:
    return write_cifar10(tmp_path / "cifar-10-batches-bin")


def test_records_become_images_in_the_order_of_the_files(cifar10: Path) -> None:
    train, val = open_cifar(cifar10, "train", channels=None), open_cifar(cifar10, "val", channels=None)
    assert (len(train), len(val), train.classes) == (10, 3, NAMES_10)
    np.testing.assert_array_equal(train.labels, np.arange(10))
    record = np.fromfile(cifar10 / "data_batch_2.bin", dtype=np.uint8)[3073 + 1 : 2 * 3073]
    image = train.read(np.array([3]), FixedViews(32), 0, replace_bad=True).images[0]
    np.testing.assert_array_equal(image, record.reshape(3, 32, 32).transpose(1, 2, 0))
    assert train.description == "CIFAR-10 binary, 10 × 32×32×3"
    assert (train.name(3), train.image_size) == ("cifar-10 train #3", 32)


def test_the_folder_around_the_archives_folder_is_accepted(cifar10: Path) -> None:
    assert len(open_cifar(cifar10.parent, "val", channels=1)) == 3
    assert open_cifar(cifar10.parent, "val", channels=1).channels == 1


def test_without_names_classes_are_numbers(cifar10: Path) -> None:
    (cifar10 / "batches.meta.txt").unlink()
    assert open_cifar(cifar10, "train", channels=None).classes == [str(i) for i in range(10)]


def test_a_truncated_file_is_named_with_its_size(cifar10: Path) -> None:
    file = cifar10 / "data_batch_3.bin"
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(UserError) as caught:
        open_cifar(cifar10, "train", channels=None)
    assert_helpful(caught.value, "data_batch_3.bin", "6,046", "3,073")


def test_an_empty_file_is_refused(cifar10: Path) -> None:
    (cifar10 / "test_batch.bin").write_bytes(b"")
    with pytest.raises(UserError) as caught:
        open_cifar(cifar10, "val", channels=None)
    assert_helpful(caught.value, "test_batch.bin", "0 bytes")


def test_missing_files_are_named(cifar10: Path) -> None:
    (cifar10 / "data_batch_2.bin").unlink()
    (cifar10 / "data_batch_5.bin").unlink()
    (cifar10 / "test_batch.bin").unlink()
    with pytest.raises(UserError) as caught:
        open_cifar(cifar10, "train", channels=None)
    assert_helpful(caught.value, "missing data_batch_2.bin, data_batch_5.bin")
    with pytest.raises(UserError) as caught:
        open_cifar(cifar10, "val", channels=None)
    assert_helpful(caught.value, "missing test_batch.bin", "data.val")


def test_a_label_out_of_range_is_told_with_its_record(cifar10: Path) -> None:
    file = cifar10 / "data_batch_4.bin"
    data = bytearray(file.read_bytes())
    data[3073] = 17
    file.write_bytes(data)
    with pytest.raises(UserError) as caught:
        open_cifar(cifar10, "train", channels=None)
    assert_helpful(caught.value, "data_batch_4.bin", "record 1", "label 17", "10 classes")


def test_pickles_and_nothing_at_all(tmp_path: Path) -> None:
    (tmp_path / "data_batch_1").write_bytes(b"pickled")
    with pytest.raises(UserError) as caught:
        open_cifar(tmp_path, "train", channels=None)
    assert_helpful(caught.value, "pickles", "binary version")


def test_two_datasets_in_one_folder_are_not_guessed_about(cifar10: Path) -> None:
    other = cifar10.parent / "cifar-100-binary"
    other.mkdir()
    (other / "train.bin").write_bytes(bytes(3074))
    with pytest.raises(UserError) as caught:
        open_cifar(cifar10.parent, "train", channels=None)
    assert_helpful(caught.value, "cifar-10-batches-bin", "cifar-100-binary")


def test_cifar_10_has_no_coarse_labels(cifar10: Path) -> None:
    with pytest.raises(UserError) as caught:
        open_cifar(cifar10, "train", channels=None, kind="coarse")
    assert_helpful(caught.value, "no coarse labels")


@needs_real_data
def test_files_made_by_tensorflow_datasets() -> None:
    ten = open_cifar(REAL / "foreign/cifar/tfds_cifar10", "train", channels=None)
    assert (len(ten), ten.classes) == (10, NAMES_10)
    hundred = open_cifar(REAL / "foreign/cifar/tfds_cifar100", "train", channels=None)
    coarse = open_cifar(REAL / "foreign/cifar/tfds_cifar100", "train", channels=None, kind="coarse")
    assert (len(hundred), len(hundred.classes), hundred.classes[0]) == (10, 100, "apple")
    assert (len(coarse.classes), coarse.classes[0]) == (20, "aquatic_mammals")
    assert hundred.images.shape == (10, 32, 32, 3)
    raw = np.fromfile(REAL / "foreign/cifar/tfds_cifar100/cifar-100-binary/train.bin", dtype=np.uint8).reshape(10, -1)
    np.testing.assert_array_equal(coarse.labels, raw[:, 0])
    np.testing.assert_array_equal(hundred.labels, raw[:, 1])
