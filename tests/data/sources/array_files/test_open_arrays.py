"""Arrays in .npz, .npy and HDF5 files: pixels and labels as numpy and h5py give them."""

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

from phalanx.config.schema import DataConfig
from phalanx.data.base import Pixels, Source
from phalanx.data.sources.array_files import rows
from phalanx.data.sources.formats import recognise
from phalanx.data.sources.open import Splits, open_data, open_split
from phalanx.errors import UserError
from tests.data.samples import FixedViews, assert_helpful, image_bytes, noise

Arrays = dict[str, Any]


def labels(count: int, classes: int = 3) -> npt.NDArray[np.int64]:
    return np.arange(count, dtype=np.int64) * 7 % classes


def medmnist(shape: tuple[int, ...] = (28, 28, 3)) -> Arrays:
    """As MedMNIST writes its files: labels (n, 1) of one byte each."""
    found: Arrays = {}
    for seed, (split, count) in enumerate((("train", 30), ("val", 12), ("test", 9))):
        found[f"{split}_images"] = noise(count, *shape, seed=seed)
        found[f"{split}_labels"] = labels(count).astype(np.uint8)[:, None]
    return found


def write_npz(folder: Path, arrays: Arrays) -> Path:
    np.savez(folder / "x.npz", **arrays)
    return folder / "x.npz"


def write_compressed(folder: Path, arrays: Arrays) -> Path:
    np.savez_compressed(folder / "x.npz", **arrays)
    return folder / "x.npz"


def write_npys(folder: Path, arrays: Arrays) -> Path:
    for name, values in arrays.items():
        np.save(folder / f"{name}.npy", values)
    return folder


def write_hdf5(folder: Path, arrays: Arrays, **options: Any) -> Path:
    h5py = pytest.importorskip("h5py", reason="h5py is not installed")
    with h5py.File(folder / "x.h5", "w") as file:
        for name, values in arrays.items():
            file.create_dataset(name, data=values, **(options if values.ndim > 2 else {}))
    return folder / "x.h5"


def write_chunked(folder: Path, arrays: Arrays) -> Path:
    return write_hdf5(folder, arrays, chunks=(4, *arrays["train_images"].shape[1:]))


def write_gzipped(folder: Path, arrays: Arrays) -> Path:
    return write_hdf5(folder, arrays, compression="gzip", shuffle=True)


def write_in_pieces(folder: Path, arrays: Arrays) -> Path:
    """Chunks that cut images."""
    return write_hdf5(folder, arrays, chunks=(4, *(max(1, side // 2) for side in arrays["train_images"].shape[1:])))


WRITERS: list[Callable[[Path, Arrays], Path]] = [
    *(write_npz, write_compressed, write_npys, write_hdf5),
    *(write_chunked, write_gzipped, write_in_pieces),
]


def opened(path: Path, **settings: Any) -> Splits:
    return open_data(DataConfig.model_validate({"source": str(path), **settings}), threads=2)


def pixels(source: Source, size: int = 28) -> Pixels:
    return source.read(np.arange(len(source)), FixedViews(size), 0, replace_bad=False).images


def refused(path: Path, *words: str, **settings: Any) -> None:
    with pytest.raises(UserError) as error:
        opened(path, **settings)
    assert_helpful(error.value, *words)


@pytest.mark.parametrize("write", WRITERS)
@pytest.mark.parametrize("shape", [(28, 28, 3), (28, 28)])
def test_medmnist_as_it_is(tmp_path: Path, write: Callable[[Path, Arrays], Path], shape: tuple[int, ...]) -> None:
    arrays = medmnist(shape)
    splits = opened(write(tmp_path, arrays))
    for source, name in ((splits.train, "train"), (splits.val, "val")):
        np.testing.assert_array_equal(pixels(source), arrays[f"{name}_images"].reshape(-1, 28, 28, source.channels))
        np.testing.assert_array_equal(source.labels, arrays[f"{name}_labels"][:, 0])
        assert source.classes == ["0", "1", "2"]
        assert (source.image_size, source.extent) == (28, (28, 28))
    assert "train_images 30 × 28×28×" in splits.notes[0]
    assert "not used: test_images, test_labels" in splits.notes[0]
    assert "val_images 12 ×" in splits.notes[1]
    expected = arrays["train_images"].reshape(-1, splits.train.channels) / 255
    np.testing.assert_allclose(splits.train.mean, expected.mean(axis=0), atol=6e-5)
    np.testing.assert_allclose(splits.train.std, expected.std(axis=0), atol=6e-5)


@pytest.mark.parametrize("write", WRITERS)
def test_large_arrays_are_read_where_they_are(
    tmp_path: Path, write: Callable[[Path, Arrays], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What cannot be read at its offset is unpacked once into the cache folder."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(rows, "IN_MEMORY_BYTES", 0)
    arrays, folder = medmnist(), tmp_path / "data"
    folder.mkdir()
    path = write(folder, arrays)
    for _ in range(2):
        splits = opened(path)
        np.testing.assert_array_equal(pixels(splits.train), arrays["train_images"])
        np.testing.assert_array_equal(pixels(splits.val), arrays["val_images"])
    unpacked = list(tmp_path.glob("cache/phalanx/unpacked/*x*"))
    packed = write in (write_compressed, write_gzipped, write_in_pieces)
    assert len(unpacked) == (2 if packed else 0)
    assert any("through a copy" in note for note in splits.notes) == packed


NAMES = [
    ("x_train", "y_train", "x_test", "y_test"),  # Keras's mnist.npz
    ("X_train", "y_train", "X_val", "y_val"),
    ("Xtrain", "Ytrain", "Xtest", "Ytest"),
    ("trainImages", "trainLabels", "testImages", "testLabels"),
    ("training_data", "training_targets", "validation_data", "validation_targets"),
    ("train_set_x", "train_set_y", "test_set_x", "test_set_y"),
]


@pytest.mark.parametrize("names", NAMES)
@pytest.mark.parametrize("write", [write_npz, write_npys, write_hdf5])
def test_usual_names(tmp_path: Path, names: tuple[str, ...], write: Callable[[Path, Arrays], Path]) -> None:
    values = (noise(12, 28, 28), labels(12), noise(6, 28, 28, seed=1), labels(6))
    splits = opened(write(tmp_path, dict(zip(names, values, strict=True))))
    np.testing.assert_array_equal(pixels(splits.train)[..., 0], values[0])
    np.testing.assert_array_equal(pixels(splits.val)[..., 0], values[2])
    np.testing.assert_array_equal(splits.val.labels, values[3])


@pytest.mark.parametrize("names", [("images", "labels"), ("x", "y"), ("data", "target"), ("arr_0", "arr_1")])
def test_one_split_is_held_out_from(tmp_path: Path, names: tuple[str, str]) -> None:
    values = (noise(20, 9, 9, 3), labels(20))
    splits = opened(write_npz(tmp_path, dict(zip(names, values, strict=True))))
    assert len(splits.train) + len(splits.val) == 20


def test_groups_of_hdf5(tmp_path: Path) -> None:
    arrays: Arrays = {}
    for seed, split in enumerate(("train", "test")):
        arrays |= {f"{split}/images": noise(12, 28, 28, 3, seed=seed), f"{split}/labels": labels(12)}
    splits = opened(write_hdf5(tmp_path, arrays))
    np.testing.assert_array_equal(pixels(splits.val), arrays["test/images"])
    assert splits.train.name(3) == f"{tmp_path}/x.h5:train:images #3"


@pytest.mark.parametrize("packed", [False, True])
def test_patch_camelyon(tmp_path: Path, packed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file for each array; labels (n, 1, 1, 1)."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    h5py = pytest.importorskip("h5py", reason="h5py is not installed")
    arrays, folder = dict[str, Any](), tmp_path / "pcam"
    folder.mkdir()
    for seed, split in enumerate(("train", "valid", "test")):
        arrays |= {f"{split}_x": noise(6, 96, 96, 3, seed=seed), f"{split}_y": labels(6, 2).reshape(6, 1, 1, 1)}
        arrays[f"{split}_mask"] = noise(6, 96, 96, 1)
    for name, values in arrays.items():
        file = folder / f"camelyonpatch_level_2_split_{name}.h5"
        with h5py.File(file, "w") as out:
            out[name.rpartition("_")[2]] = values
        if packed:
            Path(f"{file}.gz").write_bytes(gzip.compress(file.read_bytes()))
            file.unlink()
    one = folder / f"camelyonpatch_level_2_split_train_x.h5{'.gz' if packed else ''}"
    for path in (folder, one):
        splits = opened(path)
        np.testing.assert_array_equal(pixels(splits.train, 96), arrays["train_x"])
        np.testing.assert_array_equal(pixels(splits.val, 96), arrays["valid_x"])
        np.testing.assert_array_equal(splits.val.labels, arrays["valid_y"].reshape(-1))
    test = one.with_name(one.name.replace("train", "test"))
    held = open_split(str(test), DataConfig(), ["0", "1"], threads=0)
    np.testing.assert_array_equal(pixels(held, 96), arrays["test_x"])


def test_the_file_of_images_finds_its_labels(tmp_path: Path) -> None:
    arrays = {"X_train": noise(12, 8, 8), "y_train": labels(12), "X_test": noise(6, 8, 8, seed=1), "y_test": labels(6)}
    write_npys(tmp_path, arrays | {"other_things": noise(9, 8, 8)})
    splits = opened(tmp_path / "X_train.npy")
    np.testing.assert_array_equal(pixels(splits.val, 8)[..., 0], arrays["X_test"])
    test = open_split(str(tmp_path / "X_test.npy"), DataConfig(), ["0", "1", "2"], threads=0)
    np.testing.assert_array_equal(pixels(test, 8)[..., 0], arrays["X_test"])


@pytest.mark.parametrize("prefix", ["", "full_numpy_bitmap_", "full%2Fnumpy_bitmap%2F"])
def test_quick_draw(tmp_path: Path, prefix: str) -> None:
    """A class for each file; `train` is one of its classes."""
    arrays = {name: noise(5 + i, 784, seed=i) for i, name in enumerate(("cat", "The Eiffel Tower", "train"))}
    write_npys(tmp_path, {f"{prefix}{name}": values for name, values in arrays.items()})
    splits = opened(tmp_path, val_share=0.2)
    assert splits.train.classes == ["The Eiffel Tower", "cat", "train"]
    for source in (splits.train, splits.val):
        for index, image in enumerate(pixels(source)):
            name, _, row = source.name(index).rpartition(" #")
            stem = Path(name).stem.removeprefix(prefix)
            assert source.classes[source.labels[index]] == stem
            np.testing.assert_array_equal(image[..., 0].reshape(-1), arrays[stem][int(row)])


@pytest.mark.parametrize(
    ("shape", "moved"), [((3, 8, 9), (1, 2, 0)), ((1, 8, 9), (1, 2, 0)), ((8, 9, 3), (0, 1, 2)), ((8, 9, 1), (0, 1, 2))]
)
@pytest.mark.parametrize("order", ["C", "F"])
def test_channels_first_and_last_rows_and_columns(
    tmp_path: Path, shape: tuple[int, ...], moved: tuple[int, int, int], order: Any
) -> None:
    images = noise(12, *shape)
    np.save(tmp_path / "images.npy", np.asarray(images, order=order))
    np.save(tmp_path / "labels.npy", labels(12))
    source = open_split(str(tmp_path), DataConfig(), ["0", "1", "2"], threads=0)
    found = [source.image(index) for index in range(12)]  # type: ignore[attr-defined]
    np.testing.assert_array_equal(found, images.transpose(0, *(1 + axis for axis in moved)))


@pytest.mark.parametrize(
    ("values", "expected", "told"),
    [
        (np.linspace(0, 1, 12 * 64, dtype=np.float32), lambda v: np.rint(v * np.float32(255)), "0 … 1 scaled"),
        (np.linspace(0, 255, 12 * 64), np.rint, "values 0 … 255"),
        (np.linspace(-1, 1, 12 * 64), lambda v: np.rint((v + 1) / 2 * 255), "-1 … 1 scaled"),
        (np.arange(12 * 64, dtype=np.uint16) * 85, lambda v: np.rint(v / 257), "0 … 65,535 scaled"),
        (np.arange(12 * 64, dtype=np.int64) % 256, lambda v: v, "values 0 … 255"),
        (np.arange(12 * 64, dtype=">u2") * 85, lambda v: np.rint(v / 257), "0 … 65,535 scaled"),
        (np.arange(12 * 64) % 2 == 1, lambda v: v * 255, ""),
    ],
)
def test_wide_numbers_and_floats(tmp_path: Path, values: Any, expected: Callable[[Any], Any], told: str) -> None:
    images = values.reshape(12, 8, 8)
    splits = opened(write_npz(tmp_path, {"x": images, "y": labels(12)}), val_share=0.25)
    assert any(told in note for note in splits.notes)
    for source in (splits.train, splits.val):
        rows_of = [int(source.name(index).rpartition("#")[2]) for index in range(len(source))]
        np.testing.assert_array_equal(pixels(source, 8)[..., 0], expected(images[rows_of]))


def test_the_splits_share_one_rule(tmp_path: Path) -> None:
    """A dark validation part is as dark as in training."""
    arrays = {"x_train": np.full((6, 8, 8), 200.0), "y_train": labels(6)}
    arrays |= {"x_test": np.full((6, 8, 8), 1.0), "y_test": labels(6)}
    splits = opened(write_npz(tmp_path, arrays))
    assert np.unique(pixels(splits.val, 8)).tolist() == [1]


def test_one_image_out_of_range_is_a_bad_image(tmp_path: Path) -> None:
    images = np.linspace(0, 1, 6 * 64).reshape(6, 8, 8)
    images[4, 2, 2] = np.nan
    source = opened(
        write_npz(tmp_path, {"x_train": images, "y_train": labels(6), "x_test": images, "y_test": labels(6)})
    )
    found = source.val.read(np.arange(6), FixedViews(8), 0, replace_bad=False)
    assert found.indices.tolist() == [0, 1, 2, 3, 5]
    assert found.bad[0][0] == 4
    np.testing.assert_array_equal(found.images[3, ..., 0], np.rint(images[3] * 255))


@pytest.mark.parametrize(
    ("given", "classes", "numbers"),
    [
        (np.eye(3, dtype=np.uint8)[labels(12)], ["0", "1", "2"], labels(12)),
        (np.eye(3, dtype=np.float32)[labels(12)], ["0", "1", "2"], labels(12)),
        (labels(12).astype(np.float64), ["0", "1", "2"], labels(12)),
        (labels(12) == 1, ["0", "1"], labels(12) == 1),
        (np.array(["cat", "ape", "dog"])[labels(12)], ["ape", "cat", "dog"], np.array([1, 0, 2])[labels(12)]),
        (np.array([b"b", b"a", "ü".encode()])[labels(12)], ["a", "b", "ü"], np.array([1, 0, 2])[labels(12)]),
        (labels(12).astype(str), ["0", "1", "2"], labels(12)),
    ],
)
@pytest.mark.parametrize("write", [write_npz, write_hdf5])
def test_forms_of_labels(
    tmp_path: Path, write: Callable[[Path, Arrays], Path], given: Any, classes: list[str], numbers: Any
) -> None:
    if write is write_hdf5 and given.dtype.kind == "U":
        h5py = pytest.importorskip("h5py", reason="h5py is not installed")
        with h5py.File(tmp_path / "x.h5", "w") as file:
            file["images"] = noise(12, 8, 8)
            file.create_dataset("labels", data=given.astype(object), dtype=h5py.string_dtype())
        path = tmp_path / "x.h5"
    else:
        path = write(tmp_path, {"images": noise(12, 8, 8), "labels": given})
    source = open_split(str(path), DataConfig(), classes, threads=0)
    assert source.classes == classes
    np.testing.assert_array_equal(source.labels, numbers)


def test_class_names_in_the_file(tmp_path: Path) -> None:
    arrays = {"train_set_x": noise(6, 8, 8, 3), "train_set_y": labels(6, 2), "list_classes": np.array([b"no", b"cat"])}
    splits = opened(write_hdf5(tmp_path, arrays), val_share=0.4)
    assert splits.train.classes == ["no", "cat"]
    assert "class names: list_classes" in splits.notes


def test_several_labels_a_sample(tmp_path: Path) -> None:
    """As ChestMNIST's (n, 14)."""
    arrays = medmnist((28, 28))
    for split in ("train", "val", "test"):
        count = len(arrays[f"{split}_images"])
        arrays[f"{split}_labels"] = (noise(count, 14, seed=5) > 200).astype(np.uint8)
    path = write_npz(tmp_path, arrays)
    refused(path, "train_labels", "data.multi_label=true", "14", "data.label_element")
    source = opened(path, multi_label=True, val_share=0.0).train
    np.testing.assert_array_equal(source.labels, arrays["train_labels"])
    assert source.classes == [str(number) for number in range(14)]
    one = opened(path, label_element=3)
    np.testing.assert_array_equal(one.val.labels, arrays["val_labels"][:, 3])


def test_a_split_by_its_name(tmp_path: Path) -> None:
    """Evaluation on a file takes its validation part, or the arrays that are named."""
    arrays, classes = medmnist(), ["0", "1", "2"]
    path = str(write_npz(tmp_path, arrays))
    np.testing.assert_array_equal(pixels(open_split(path, DataConfig(), classes, threads=0)), arrays["val_images"])
    test = DataConfig(image_field="test_images", label_field="test_labels")
    np.testing.assert_array_equal(pixels(open_split(path, test, classes, threads=0)), arrays["test_images"])
    alone = open_split(path, DataConfig(image_field="test_images"), classes, threads=0)
    np.testing.assert_array_equal(alone.labels, arrays["test_labels"][:, 0])


def test_fields_choose_among_arrays(tmp_path: Path) -> None:
    arrays: Arrays = {}
    for seed, split in enumerate(("train", "test")):
        arrays |= {f"{split}_left": noise(6, 8, 8, seed=seed), f"{split}_right": noise(6, 8, 8, seed=seed + 2)}
        arrays |= {f"{split}_fine": labels(6), f"{split}_coarse": labels(6, 2)}
    path = write_npz(tmp_path, arrays)
    refused(path, "train_left (6×8×8, uint8)", "test_coarse (6, int64)", "data.image_field", "data.label_field")
    splits = opened(path, image_field="right", label_field="coarse")
    np.testing.assert_array_equal(pixels(splits.val, 8)[..., 0], arrays["test_right"])
    np.testing.assert_array_equal(splits.val.labels, arrays["test_coarse"])


def test_class_names_of_a_model_by_number(tmp_path: Path) -> None:
    path = write_npz(tmp_path, {"images": noise(4, 8, 8), "labels": np.array([0, 1, 1, 0])})
    source = open_split(str(path), DataConfig(), ["ape", "cat", "dog"], threads=0)
    assert source.classes == ["ape", "cat", "dog"]
    assert any("matched by number: 0 is ape" in note for note in source.notes)


@pytest.mark.parametrize("kind", ["vlen", "opaque", "npz"])
def test_compressed_images_in_an_array(tmp_path: Path, kind: str) -> None:
    originals = list(noise(6, 12, 10, 3))
    encoded = [image_bytes(image) for image in originals]
    if kind == "npz":
        path = write_npz(tmp_path, {"images": np.array(encoded), "labels": labels(6)})
    else:
        h5py = pytest.importorskip("h5py", reason="h5py is not installed")
        path = tmp_path / "x.h5"
        with h5py.File(path, "w") as file:
            file["labels"] = labels(6)
            longest = max(map(len, encoded))
            dtype = h5py.vlen_dtype(np.uint8) if kind == "vlen" else np.dtype(f"V{longest}")
            images = file.create_dataset("images", (6,), dtype=dtype)
            for number, data in enumerate(encoded):
                images[number] = (
                    np.frombuffer(data, np.uint8) if kind == "vlen" else np.void(data.ljust(longest, b"\0"))
                )
    source = open_split(str(path), DataConfig(), ["0", "1", "2"], threads=2)
    for index, image in enumerate(originals):
        found = source.read(np.array([index]), FixedViews(16), 0, replace_bad=False).images[0]
        expected = Image.fromarray(image).resize((16, 16), Image.Resampling.BILINEAR)
        assert np.abs(found.astype(int) - np.asarray(expected)).max() <= 1
    np.testing.assert_array_equal(source.labels, labels(6))


def test_pickles_are_never_read(tmp_path: Path) -> None:
    texts = np.array(["a", "b", "c", "a", "b", "c"], dtype=object)
    np.savez(tmp_path / "x.npz", images=noise(6, 8, 8), labels=texts, allow_pickle=True)
    refused(tmp_path / "x.npz", "labels", "Python objects", "never reads pickle", "dtype=str")
    np.savez(tmp_path / "y.npz", images=noise(6, 8, 8), labels=labels(6), meta=texts, allow_pickle=True)
    assert len(opened(tmp_path / "y.npz", val_share=0.5).train) == 3  # other arrays may be whatever they are


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"images": noise(6, 28, 28, 28), "labels": labels(6)}, ("28×28×28 is a volume",)),
        ({"images": noise(6, 8, 8, 4), "labels": labels(6)}, ("1 or 3 channels", "6×8×8×4")),
        ({"images": noise(6, 3072), "labels": labels(6)}, ("three channels",)),
        ({"images": noise(6, 80), "labels": labels(6)}, ("80 values are not a square",)),
        ({"images": noise(6, 8, 8), "labels": labels(5)}, ("6 images and 5 labels",)),
        ({"images": noise(6, 8, 8), "labels": labels(6) - 1}, ("-1", "sample 0")),
        ({"images": noise(6, 8, 8), "labels": labels(6) + 0.5}, ("0.5",)),
        ({"images": noise(6, 8, 8), "labels": noise(6, 4)}, ("4 values", "data.label_element")),
        ({"images": noise(6, 8, 8)}, ("no labels",)),
        ({"images": noise(6, 8, 8).astype(np.float32) * 9, "labels": labels(6)}, ("floats between",)),
        ({"images": noise(6, 8, 8).astype(np.complex64), "labels": labels(6)}, ("complex64",)),
        ({"a": noise(6, 8, 8), "b": noise(6, 8, 8), "c": labels(6)}, ("a and b", "a (6×8×8, uint8)")),
        ({"x_train": noise(6, 8, 8), "x_test": noise(6, 8, 8)}, ("x_train (6×8×8, uint8)", "x_test")),
    ],
)
@pytest.mark.parametrize("write", [write_npz, write_npys])
def test_what_is_refused(
    tmp_path: Path, write: Callable[[Path, Arrays], Path], arrays: Arrays, words: tuple[str, ...]
) -> None:
    refused(write(tmp_path, arrays), *words)


def test_damage_is_located(tmp_path: Path) -> None:
    np.save(tmp_path / "images.npy", noise(6, 8, 8))
    np.save(tmp_path / "labels.npy", labels(6))
    whole = (tmp_path / "images.npy").read_bytes()
    (tmp_path / "images.npy").write_bytes(whole[:-10])
    refused(tmp_path, "images.npy", "offset 502", "384 bytes", "374 follow")
    (tmp_path / "images.npy").write_bytes(b"\x93NUMPY\x01\0\xff")
    refused(tmp_path, "images.npy", "header")

    path = write_compressed(tmp_path, medmnist())
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    refused(path, "x.npz", "directory at its end is missing")
    broken = bytearray(whole)
    broken[3000] ^= 0xFF
    path.write_bytes(broken)
    refused(path, "train_images", "x.npz", "damaged")


def test_damaged_hdf5(tmp_path: Path) -> None:
    path = write_hdf5(tmp_path, medmnist())
    path.write_bytes(path.read_bytes()[:-5000])
    refused(path, "x.h5", "truncated")


def test_a_file_that_becomes_shorter_gives_bad_images(tmp_path: Path) -> None:
    path = write_npys(tmp_path, {"images": noise(6, 8, 8), "labels": labels(6)})
    source = open_split(str(path), DataConfig(), ["0", "1", "2"], threads=0)
    with (path / "images.npy").open("r+b") as file:
        file.truncate(300)
    found = source.read(np.arange(6), FixedViews(8), 0, replace_bad=False)
    assert len(found.bad) + len(found.images) == 6
    assert found.bad


def test_class_folders_beside_arrays_come_first(tmp_path: Path) -> None:
    for name in ("cat", "dog"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "1.png").write_bytes(image_bytes(noise(8, 8, 3)))
    np.save(tmp_path / "features.npy", noise(6, 512))
    assert recognise(str(tmp_path))[0] == "folder"


def test_named_formats(tmp_path: Path) -> None:
    path = write_npz(tmp_path, medmnist())
    path.rename(tmp_path / "data.bin")
    assert recognise(f"npz:{tmp_path / 'data.bin'}") == ("npz", tmp_path / "data.bin")
    np.save(tmp_path / "unnamed", noise(4, 8, 8))
    (tmp_path / "unnamed.npy").rename(tmp_path / "unnamed")
    assert recognise(str(tmp_path / "unnamed"))[0] == "npy"


def test_crops_and_channels_are_those_of_images_in_memory(tmp_path: Path) -> None:
    """The same views as from any other source of equally large images."""
    from phalanx.config.schema import AugmentConfig
    from phalanx.data.augment.framing import train_framing
    from phalanx.data.sources.arrays import array_source

    images = noise(20, 16, 16, 3)
    path = write_npz(tmp_path, {"images": images, "labels": labels(20)})
    for channels in (1, 3):
        config = DataConfig(channels=channels)
        source = open_split(str(path), config, ["0", "1", "2"], threads=2)
        memory = array_source("x", "x", images, labels(20), ["0", "1", "2"], image_size=16, channels=channels)
        assert (source.mean, source.std) == (memory.mean, memory.std)
        for crop in ("pad", "random-resized"):
            framing = train_framing(AugmentConfig(crop=crop, flip=0.5), config, 16, 7, memory)
            order = np.random.default_rng(0).permutation(20)
            one, other = (each.read(order, framing, 3, replace_bad=True) for each in (memory, source))
            np.testing.assert_array_equal(other.images, one.images)
