"""Binary files of records under any names; STL-10 and SVHN. numpy reads them independently."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from phalanx.config.schema import DataConfig
from phalanx.data.base import Pixels
from phalanx.data.sources.arrays import ArraySource
from phalanx.data.sources.formats import recognise
from phalanx.data.sources.labelled import Labelled, Part
from phalanx.data.sources.open import open_parts
from phalanx.errors import UserError
from tests.data.samples import assert_helpful, noise, smooth


def write(path: Path, images: Pixels, labels: npt.ArrayLike, *, planar: bool = True) -> Path:
    """Records of label byte(s) and pixels, from images (n, height, width, channels)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    count = len(images)
    pixels = images.transpose(0, 3, 1, 2) if planar else images
    columns = [np.asarray(labels, np.uint8).reshape(count, -1), pixels.reshape(count, -1)]
    np.concatenate(columns, axis=1).tofile(path)
    return path


def opened(path: Path | str, **settings: Any) -> dict[Part, Labelled]:
    parts, _ = open_parts(DataConfig.model_validate({"source": str(path), **settings}), threads=0)
    return parts


def refused(path: Path | str, **settings: Any) -> UserError:
    with pytest.raises(UserError) as caught:
        opened(path, **settings)
    return caught.value


def images_of(source: Labelled) -> Pixels:
    assert isinstance(source, ArraySource)
    return source.images


@pytest.mark.parametrize(
    ("side", "channels", "classes"), [(32, 3, 10), (28, 1, 10), (64, 3, 200), (48, 1, 7), (16, 3, 2)]
)
def test_layouts_by_the_length_of_the_files(tmp_path: Path, side: int, channels: int, classes: int) -> None:
    counts = {"mine_train_1": 400, "mine_train_2": 300, "mine_val": 100}
    expected = {name: noise(count, side, side, channels, seed=count) for name, count in counts.items()}
    labels = {name: np.arange(count) % classes for name, count in counts.items()}
    for name, images in expected.items():
        write(tmp_path / f"{name}.bin", images, labels[name])
    assert recognise(str(tmp_path))[0] == "bin"
    parts = opened(tmp_path)
    train = np.concatenate([expected["mine_train_1"], expected["mine_train_2"]])
    np.testing.assert_array_equal(images_of(parts["train"]), train)
    np.testing.assert_array_equal(images_of(parts["val"]), expected["mine_val"])
    assert parts["train"].labels.tolist() == [*labels["mine_train_1"], *labels["mine_train_2"]]
    assert parts["val"].labels.tolist() == labels["mine_val"].tolist()
    assert parts["train"].classes == [str(number) for number in range(classes)]
    assert parts["train"].notes[0].startswith(f"records: 1 label byte and {side}×{side}×{channels}")
    alone = opened(tmp_path / "mine_train_2.bin")
    assert len(alone["train"]) == 300


def test_a_train_bin_of_other_data_is_not_cifar_100(tmp_path: Path) -> None:
    expected = noise(40, 20, 20, 3)
    write(tmp_path / "train.bin", expected, np.arange(40) % 5)
    write(tmp_path / "test.bin", expected[:10], np.arange(10) % 5)
    parts = opened(tmp_path)
    np.testing.assert_array_equal(images_of(parts["train"]), expected)
    assert [len(part) for part in parts.values()] == [40, 10]


def test_the_layout_that_is_given(tmp_path: Path) -> None:
    expected = noise(30, 6, 10, 3)
    path = write(tmp_path / "a.bin", expected, np.arange(30) % 3, planar=False)
    assert_helpful(refused(path), "a.bin", f"{path.stat().st_size:,} bytes", "data.image_shape")
    parts = opened(path, image_shape=[6, 10, 3], image_layout="hwc")
    np.testing.assert_array_equal(images_of(parts["train"]), expected)
    assert_helpful(refused(path, image_shape=[6, 11, 3]), "data.image_shape", "bytes")
    names = tmp_path / "batches.meta.txt"
    names.write_text("ape\ncat\ndog\n")
    assert opened(path, image_shape=[6, 10, 3])["train"].classes == ["ape", "cat", "dog"]


def test_two_label_bytes(tmp_path: Path) -> None:
    labels = np.stack([np.arange(120) % 4, np.arange(120) % 12], axis=1)
    path = write(tmp_path / "hundred.bin", noise(120, 32, 32, 3), labels)
    fine = opened(path)["train"]
    assert (fine.labels.tolist(), len(fine.classes)) == (labels[:, 1].tolist(), 12)
    assert "2 label bytes and 32×32×3" in fine.notes[0]
    assert "byte 1 is the class" in fine.notes[0]
    assert opened(path, label_element=0)["train"].labels.tolist() == labels[:, 0].tolist()
    path = write(tmp_path / "other" / "a.bin", noise(120, 24, 24, 3), labels)
    assert_helpful(refused(path), "2 label byte(s)", "byte 0: 0 to 3, byte 1: 0 to 11", "data.label_element")
    assert opened(path, label_element=1)["train"].labels.tolist() == labels[:, 1].tolist()


def test_what_nothing_decides_is_refused_with_what_fits(tmp_path: Path) -> None:
    path = tmp_path / "a" / "weights.bin"
    path.parent.mkdir()
    path.write_bytes(noise(3074 * 100).tobytes())
    error = refused(path)
    assert_helpful(
        error, "2 label bytes and 32×32×3", "1 label byte and 12×12×1", "in none of them", "data.label_bytes="
    )
    path.write_bytes(b"")
    assert_helpful(refused(path), "is empty")
    # 2 · (1 + 6·10·3) = 1 + 19·19: two records of another shape look like one of a square.
    path = write(tmp_path / "b" / "a.bin", noise(30, 6, 10, 3), np.arange(30) % 3)
    assert_helpful(refused(path), "1 label byte and 19×19×1 pixels (362 bytes)", "smaller records, not square")


def test_labels_from_one_and_pixels_of_another_order_are_told(tmp_path: Path) -> None:
    pictures = np.stack([np.roll(smooth(32, 32), shift, axis=1) for shift in range(12)])
    path = write(tmp_path / "a.bin", pictures, np.arange(12) % 3 + 1, planar=False)
    notes = opened(path)["train"].notes
    assert "they look otherwise" in notes[0]
    assert "data.image_layout=hwc" in notes[0]
    assert notes[1] == "labels begin at 1: class 0 has no samples"
    assert "look otherwise" not in opened(write(path, pictures, np.arange(12) % 3))["train"].notes[0]


def write_stl10(folder: Path) -> dict[str, Pixels]:
    """As published: each image is stored as (channels, columns, rows)."""
    folder.mkdir()
    made = {}
    for number, (name, count) in enumerate({"train": 20, "test": 10}.items()):
        made[name] = noise(count, 96, 96, 3, seed=number)
        made[name].transpose(0, 3, 2, 1).tofile(folder / f"{name}_X.bin")
        (np.arange(count) % 10 + 1).astype(np.uint8).tofile(folder / f"{name}_y.bin")
    return made


def test_stl10(tmp_path: Path) -> None:
    made = write_stl10(tmp_path / "stl10_binary")
    (tmp_path / "stl10_binary" / "unlabeled_X.bin").write_bytes(b"")
    for path in (tmp_path, tmp_path / "stl10_binary"):
        assert recognise(str(path))[0] == "stl10"
        parts = opened(path)
        np.testing.assert_array_equal(images_of(parts["train"]), made["train"])
        np.testing.assert_array_equal(images_of(parts["val"]), made["test"])
        assert parts["train"].labels.tolist() == [*range(10)] * 2
        assert (parts["train"].classes[0], parts["train"].classes[9]) == ("airplane", "truck")
    assert "unlabeled_X.bin has no labels and is left out" in parts["train"].notes[0]
    folder = tmp_path / "stl10_binary"
    (folder / "train_y.bin").write_bytes(bytes([1, 2, 3]))
    assert_helpful(refused(folder), "train_X.bin", "3 labels", "27,648")
    (folder / "train_y.bin").write_bytes(bytes(range(20)))
    assert_helpful(refused(folder), "train_y.bin", "0 to 19")
    (folder / "train_y.bin").unlink()
    assert_helpful(refused(folder), "missing train_y.bin")


def test_svhn(tmp_path: Path) -> None:
    from scipy.io import savemat

    made = {name: noise(count, 32, 32, 3) for name, count in {"train": 20, "test": 10}.items()}
    for name, images in made.items():
        labels = (np.arange(len(images)) % 10 + 1).astype(np.uint8)[:, None]
        savemat(tmp_path / f"{name}_32x32.mat", {"X": images.transpose(1, 2, 3, 0), "y": labels}, do_compression=True)
    assert recognise(str(tmp_path))[0] == "svhn"
    parts = opened(tmp_path)
    np.testing.assert_array_equal(images_of(parts["train"]), made["train"])
    np.testing.assert_array_equal(images_of(parts["val"]), made["test"])
    assert parts["train"].labels.tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 9, 0] * 2
    savemat(tmp_path / "train_32x32.mat", {"Z": made["train"]})
    assert_helpful(refused(tmp_path), "train_32x32.mat", "Z (20, 32, 32, 3)")
    (tmp_path / "train_32x32.mat").write_bytes(b"nothing of the kind")
    assert_helpful(refused(tmp_path), "train_32x32.mat cannot be read")
