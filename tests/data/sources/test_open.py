"""From what the user wrote to the splits of a run."""

import os
from pathlib import Path

import numpy as np
import pytest

from phalanx.config.schema import DataConfig, SyntheticConfig
from phalanx.data.base import Source
from phalanx.data.sources.folders import FileSource
from phalanx.data.sources.formats import FORMATS, recognise
from phalanx.data.sources.open import Splits, open_data, open_split
from phalanx.errors import UserError
from tests.data.samples import REAL, FixedViews, assert_helpful, image_bytes, needs_real_data, smooth, write_images
from tests.data.sources.test_cifar import write_cifar10
from tests.data.sources.test_idx import write_idx


def opened(source: str | Path, val: str | Path | None = None, val_labels: Path | None = None) -> Splits:
    config = DataConfig(source=str(source), val=None if val is None else str(val), val_labels=val_labels)
    return open_data(config, threads=2)


def refused(source: str | Path, val: str | Path | None = None, val_labels: Path | None = None) -> UserError:
    with pytest.raises(UserError) as caught:
        opened(source, val, val_labels)
    return caught.value


def split_of(source: str | Path, classes: list[str], val_labels: Path | None = None) -> Source:
    return open_split(str(source), DataConfig(val_labels=val_labels), classes, threads=0)


@pytest.fixture
def folders(tmp_path: Path) -> Path:
    write_images(tmp_path / "train", {"ape": 3, "cat": 4, "dog": 5})
    write_images(tmp_path / "val", {"cat": 1, "dog": 2})
    return tmp_path


@pytest.fixture
def flat(tmp_path: Path) -> Path:
    """Training in class folders, validation images without."""
    write_images(tmp_path / "train", {"ape": 3, "cat": 4})
    (tmp_path / "val").mkdir()
    for i in range(3):
        (tmp_path / "val" / f"{i}.JPEG").write_bytes(image_bytes(smooth(6, 6), "JPEG"))
    return tmp_path


def test_the_default_is_digits() -> None:
    splits = open_data(DataConfig(), threads=0)
    assert (len(splits.train), len(splits.val), splits.notes) == (1442, 355, [])
    assert splits.val.mean == splits.train.mean


def test_synthetic_takes_its_own_settings() -> None:
    settings = SyntheticConfig(samples=7, val_samples=3, classes=4, size=8, channels=1)
    splits = open_data(DataConfig(source="synthetic", synthetic=settings, channels=3), threads=0)
    assert (len(splits.train), len(splits.val), splits.train.channels, splits.val.channels) == (7, 3, 3, 3)


def test_train_and_val_folders_are_matched_by_class_name(folders: Path) -> None:
    splits = opened(folders)
    assert splits.train.classes == splits.val.classes == ["ape", "cat", "dog"]
    np.testing.assert_array_equal(splits.val.labels, [1, 2, 2])
    assert splits.notes == []


@pytest.mark.parametrize(("name", "notes"), [("valid", 0), ("validation", 0), ("test", 1)])
def test_other_names_of_the_validation_folder(folders: Path, name: str, notes: int) -> None:
    (folders / "val").rename(folders / name)
    splits = opened(folders)
    assert (len(splits.val), len(splits.notes)) == (3, notes)


def test_plain_class_folders_are_divided(folders: Path) -> None:
    splits = opened(folders / "train")
    assert (len(splits.train), len(splits.val)) == (9, 3)
    assert splits.notes[0].startswith(
        "validation: 3 of 12 images held out (25.0 %; data.val_share=0.1 and at least one"
    )
    names = {part.name(i) for part in (splits.train, splits.val) for i in range(len(part))}
    assert len(names) == 12


def test_a_class_may_be_called_train(tmp_path: Path) -> None:
    assert opened(write_images(tmp_path, {"car": 2, "train": 2})).train.classes == ["car", "train"]


def test_train_and_val_without_class_folders_are_not_classes(tmp_path: Path) -> None:
    write_images(tmp_path, {"train": 3, "val": 2})
    assert_helpful(refused(tmp_path), str(tmp_path / "train"), "no class folders")


def test_only_a_validation_folder(folders: Path) -> None:
    (folders / "train").rename(folders.parent / f"{folders.name}-elsewhere")
    assert_helpful(refused(folders), "no training folder", "val", f"--data {folders / 'val'}")
    assert len(split_of(folders, ["cat", "dog"])) == 3


def test_validation_data_given_explicitly(folders: Path) -> None:
    splits = opened(folders / "train", val=folders / "val")
    assert (len(splits.train), len(splits.val), splits.notes) == (12, 3, [])


def test_an_unknown_class_in_validation(folders: Path) -> None:
    write_images(folders / "val2", {"cat": 1, "eel": 1})
    assert_helpful(refused(folders, val=folders / "val2"), "eel", "ape, cat, dog")


def test_a_flat_validation_folder_with_its_list(flat: Path) -> None:
    (flat / "labels.txt").write_text("cat\nape\n1\n")
    for val in (None, flat / "val"):
        splits = opened(flat, val, flat / "labels.txt")
        np.testing.assert_array_equal(splits.val.labels, [1, 0, 1])
    np.testing.assert_array_equal(split_of(flat / "val", ["ape", "cat"], flat / "labels.txt").labels, [1, 0, 1])


def test_a_flat_validation_folder_without_a_list(flat: Path) -> None:
    assert_helpful(refused(flat), str(flat / "val"), "data.val_labels")


def test_labels_that_would_not_be_used(folders: Path) -> None:
    (folders / "labels.txt").write_text("cat\n")
    assert_helpful(refused(folders, val_labels=folders / "labels.txt"), "data.val_labels", "not used")
    assert_helpful(refused(folders / "train", val_labels=folders / "labels.txt"), "not used")


def test_a_list_and_the_one_beside_it(folders: Path) -> None:
    (folders / "train_list.txt").write_text("train/ape/0.png 0\ntrain/cat/1.png 1\ntrain/dog/1.png 2\n")
    (folders / "val_list.txt").write_text("val/cat/0.png 1\n")
    splits = opened(folders / "train_list.txt")
    assert (len(splits.train), splits.val.labels.tolist()) == (3, [1])
    assert "val_list.txt" in splits.notes[0]
    assert len(split_of(folders / "train_list.txt", ["a", "b", "c"])) == 3, "a file is meant as it is named"
    (folders / "val_list.txt").write_text("val/cat/0.png 1\nval/cat/0.png 3\n")
    assert_helpful(refused(folders / "train_list.txt"), "val_list.txt, line 2", "'3'")


def test_a_list_alone_is_divided(folders: Path) -> None:
    rows = [(0, f"train/dog/{i}.png") for i in range(5)] + [(1, f"train/cat/{i}.png") for i in range(4)]
    (folders / "all.lst").write_text("".join(f"{i}\t{label}.0\t{name}\n" for i, (label, name) in enumerate(rows)))
    splits = opened(folders / "all.lst")
    assert (len(splits.train), len(splits.val)) == (7, 2)


def test_cifar_and_idx_are_recognised(tmp_path: Path) -> None:
    write_cifar10(tmp_path / "c" / "cifar-10-batches-bin")
    write_idx(tmp_path / "m", packed=True)
    cifar, idx = opened(tmp_path / "c"), opened(tmp_path / "m")
    assert (len(cifar.train), len(cifar.val), cifar.train.channels) == (10, 3, 3)
    assert (len(idx.train), len(idx.val), idx.train.channels) == (12, 4, 1)
    assert cifar.val.mean == cifar.train.mean
    assert open_data(DataConfig(source=str(tmp_path / "m"), channels=3), threads=0).val.channels == 3


def test_validation_takes_the_channels_of_training(tmp_path: Path) -> None:
    write_idx(tmp_path / "m", packed=False)
    write_images(tmp_path / "digits", {"3": 1, "7": 2})
    val = opened(tmp_path / "m", val=tmp_path / "digits").val
    assert (val.channels, val.labels.tolist()) == (1, [3, 7, 7])
    assert val.read(np.array([0]), FixedViews(28), 0, replace_bad=False).images.shape == (1, 28, 28, 1)


def test_the_run_seed_has_no_part_in_the_division(folders: Path) -> None:
    first, again = opened(folders / "train"), opened(folders / "train")
    assert [first.val.name(i) for i in range(3)] == [again.val.name(i) for i in range(3)]


def test_a_format_can_be_forced(folders: Path) -> None:
    assert recognise(f"folder:{folders}") == ("folder", folders)
    odd = folders / "labels.data"
    odd.write_text("train/ape/0.png ape\n")
    assert recognise(f"list:{odd}") == ("list", odd)
    assert recognise("digits:") == ("digits", Path())
    assert_helpful(refused(f"cifar:{folders}"), "no CIFAR data")
    assert_helpful(refused(f"idx:{folders}"), "no idx files", "train-images-idx3-ubyte")


def test_colons_in_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_images(Path("take:2"), {"a": 2, "b": 2})
    assert recognise("take:2") == ("folder", Path("take:2"))
    assert recognise("folder:take:2") == ("folder", Path("take:2"))
    assert recognise(f"{tmp_path}/take:2")[0] == "folder"
    assert_helpful(refused(f"{tmp_path}/take:3"), "take:3", "neither an existing path")
    assert_helpful(refused("C:\\images"), "neither an existing path")


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("cifra:/data", ["'cifra' is not a format", "did you mean cifar"]),
        ("digit", ["no data at 'digit'", "did you mean digits"]),
        ("syntetic", ["did you mean synthetic"]),
        ("/no/such/place", ["/no/such/place"]),
        ("folder:/no/such/place", ["/no/such/place"]),
        ("~nobody-is-called-so/images", ["~nobody-is-called-so/images"]),
        ("folder:", ["no data at ''"]),
        ("", ["no data at ''"]),
        ("digits:/somewhere", ["takes no path", "/somewhere"]),
    ],
)
def test_what_is_not_there(source: str, words: list[str]) -> None:
    assert_helpful(refused(source), *words)


def test_what_the_system_refuses(tmp_path: Path) -> None:
    assert_helpful(refused("x" * 5000), "cannot be read", "too long")
    assert_helpful(refused(write_cifar10(tmp_path), val="y" * 300), "'yyy", "cannot be read")


def test_folders_and_files_of_no_known_format(tmp_path: Path) -> None:
    assert_helpful(refused(tmp_path), str(tmp_path), *(f.looks_like for f in FORMATS.values()))
    (tmp_path / "data_batch_1").write_bytes(b"")
    assert_helpful(refused(tmp_path), "pickles")
    (tmp_path / "weights.data").write_bytes(b"")
    assert_helpful(refused(tmp_path / "weights.data"), "weights.data", "FORMAT:PATH")


def test_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_images(tmp_path / "images", {"a": 2, "b": 2})
    monkeypatch.setenv("HOME", os.fspath(tmp_path))
    assert len(opened("~/images").train) == 2
    assert recognise("folder:~/images") == ("folder", tmp_path / "images")


def test_one_dataset_for_a_model(folders: Path) -> None:
    val = split_of(folders, ["dog", "cat", "ape"])
    assert (val.labels.tolist(), val.classes) == ([1, 0, 0], ["dog", "cat", "ape"])
    whole = split_of(folders / "train", ["dog", "cat", "ape"])
    assert len(whole) == 12
    assert whole.labels.tolist()[:3] == [2, 2, 2]
    assert split_of(folders / "train", ["0", "1", "2"]).labels.tolist()[-1] == 2
    with pytest.raises(UserError) as caught:
        split_of(folders, ["hen", "cat", "ape"])
    assert_helpful(caught.value, "dog", "hen, cat, ape")


@needs_real_data
def test_real_folders() -> None:
    splits = opened(REAL / "imagenette224")
    assert (len(splits.train), len(splits.val), splits.notes) == (1500, 500, [])
    pets = opened(REAL / "pets")
    assert (len(pets.train), len(pets.val)) == (184, 20)
    np.testing.assert_array_equal(np.bincount(pets.val.labels), [2] * 10)
    assert isinstance(splits.train, FileSource)
    read = pets.val.read(np.arange(20), FixedViews(96), 0, replace_bad=False)
    assert (len(read.images), read.bad) == (20, [])


@needs_real_data
def test_real_cifar() -> None:
    assert opened(REAL / "foreign/cifar/tfds_cifar100").train.classes[99] == "worm"
    assert len(opened(f"cifar-coarse:{REAL}/foreign/cifar/tfds_cifar100").train.classes) == 20
