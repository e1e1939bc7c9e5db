"""Several files as one dataset: ranges, globs, and folders with the files of each split."""

from pathlib import Path

import pytest

from phalanx.config.schema import DataConfig
from phalanx.data.sources.formats import recognise
from phalanx.data.sources.open import Splits, open_data, open_split
from phalanx.data.sources.shards.find_files import expanded
from phalanx.data.sources.splits import split_word
from phalanx.errors import UserError
from tests.data.samples import assert_helpful, write_images
from tests.data.shard_files import pictures, write_rec, write_tfrecord, write_wds


def opened(source: str | Path, **settings: object) -> Splits:
    return open_data(DataConfig.model_validate({"source": str(source), **settings}), threads=0)


def refused(source: str | Path) -> UserError:
    with pytest.raises(UserError) as caught:
        opened(source)
    return caught.value


@pytest.fixture
def tars(tmp_path: Path) -> Path:
    """Twelve training shards of two samples, two of validation."""
    for i in range(12):
        write_wds(tmp_path / f"train-{i:03d}.tar", pictures(2, classes=2))
    for i in range(2):
        write_wds(tmp_path / f"val-{i:03d}.tar", pictures(3, classes=2))
    return tmp_path


@pytest.mark.parametrize(
    ("pattern", "count"),
    [("train-{000..011}.tar", 12), ("train-{003..004}.tar", 2), ("train-*.tar", 12), ("train-0{0..1}[01].tar", 4)],
)
def test_ranges_and_globs(tars: Path, pattern: str, count: int) -> None:
    assert recognise(f"{tars}/{pattern}") == ("wds", tars / pattern)
    files = expanded(tars / pattern)
    assert (len(files), files) == (count, sorted(files))
    splits = opened(tars / pattern)
    assert (len(splits.train), len(splits.val)) == (2 * count, 6)
    assert "2 files" in splits.notes[0]
    assert "found beside the training data" in splits.notes[0]
    assert len(opened(f"wds:{tars}/{pattern}").train) == 2 * count


def test_a_pattern_is_meant_as_it_is_written(tars: Path) -> None:
    assert len(open_split(f"{tars}/train-{{000..001}}.tar", DataConfig(), ["0", "1"], threads=0)) == 4
    assert len(open_split(str(tars), DataConfig(), ["0", "1"], threads=0)) == 6, "of a folder, validation is meant"
    assert len(opened(tars / "train-000.tar", val=f"{tars}/val-*.tar").val) == 6


def test_numbers_that_are_missing_are_named(tars: Path) -> None:
    (tars / "train-003.tar").unlink()
    (tars / "train-007.tar").unlink()
    assert_helpful(refused(tars / "train-{000..011}.tar"), "2 files", "train-003.tar", "train-007.tar")
    assert_helpful(refused(tars / "nothing-*.tar"), "no file matches", "nothing-*.tar")
    assert_helpful(refused(f"rec:{tars}/nothing-*.rec"), "no file matches")
    assert_helpful(refused(tars / "train-{5..2}.tar"), "range 5..2")
    assert_helpful(refused(tars / "train-{0..99999999}.tar"), "range 0..99999999")
    assert_helpful(refused(tars / "t-{0..9999}-{0..9999}.tar"), "too many files")
    (tars / "folder-1").mkdir()
    assert_helpful(refused(tars / "folder-*"), "only folders")
    assert_helpful(refused(f"folder:{tars}/*"), "there is no data at")


def test_files_of_other_formats_are_not_swallowed(tars: Path) -> None:
    (tars / "train-notes.md").write_text("text")
    assert_helpful(refused(tars / "train-*"), "holds no data of a known format")
    assert_helpful(refused(f"wds:{tars}/train-*"), "train-notes.md is not a WebDataset file")


def test_a_name_with_the_signs_of_a_pattern(tmp_path: Path) -> None:
    path = write_rec(tmp_path / "odd[1]{0..3}.rec", pictures(4, classes=2))
    assert expanded(path) == [path]
    assert len(opened(path).train) == 2


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("train-000.tar", "train"),
        ("imagenet1k-validation-00.tar", "val"),
        ("cifar10_test.tfrecord", "test"),
        ("test_set-train.tfrecord-00000-of-00001", "train"),
        ("val_256_q90.rec", "val"),
        ("train2012.rec", "train"),
        ("Training.rec", "train"),
        ("TESTING-2.tar", "test"),
        ("pets_valid.rec", "val"),
        ("devSet.rec", "val"),
        ("contrain.rec", None),
        ("trainval.rec", None),
        ("data.tar", None),
    ],
)
def test_the_split_in_a_name(name: str, word: str | None) -> None:
    assert split_word(name) == word


def test_a_folder_of_shards(tars: Path) -> None:
    assert recognise(str(tars)) == ("wds", tars)
    splits = opened(tars)
    assert (len(splits.train), len(splits.val), splits.notes) == (24, 6, [])
    write_wds(tars / "extra.tar", pictures(2))
    splits = opened(tars)
    assert len(splits.train) == 24
    assert splits.notes == [f"1 files in {tars} have no split in their names and are left out: extra.tar"]


def test_other_layouts_of_folders(tmp_path: Path) -> None:
    rec = tmp_path / "rec"
    rec.mkdir()
    write_rec(rec / "train.rec", pictures(4))
    write_rec(rec / "test.rec", pictures(3))
    splits = opened(rec)
    assert (len(splits.train), len(splits.val)) == (4, 3)
    assert splits.notes == [f"validation: {rec / 'test.rec'} (there is no val beside it)"]
    below = tmp_path / "below"
    for part, count in (("train", 4), ("val", 3)):
        (below / part).mkdir(parents=True)
        for i in range(2):
            write_wds(below / part / f"{i}.tar", pictures(count))
    splits = opened(below)
    assert (len(splits.train), len(splits.val)) == (8, 6)
    single = tmp_path / "single"
    single.mkdir()
    write_rec(single / "pets.rec", pictures(6, classes=2))
    assert (len(opened(single).train), len(opened(single).val)) == (4, 2)
    only_val = tmp_path / "only"
    only_val.mkdir()
    write_rec(only_val / "val.rec", pictures(6, classes=2))
    splits = opened(only_val)
    assert (len(splits.train), len(splits.val)) == (4, 2)
    assert "are called val" in splits.notes[0]
    write_rec(only_val / "test.rec", pictures(6, classes=2))
    assert_helpful(refused(only_val), "no RecordIO files for training", "val.rec")


def test_tfrecord_names(tmp_path: Path) -> None:
    tfds = tmp_path / "tfds"
    tfds.mkdir()
    for i in range(3):
        write_tfrecord(tfds / f"pets-train.tfrecord-0000{i}-of-00003", pictures(2))
    write_tfrecord(tfds / "pets-validation.tfrecord-00000-of-00001", pictures(3))
    (tfds / "label.labels.txt").write_text("ape\ncat\ndog\n")
    (tfds / "dataset_info.json").write_text("{}")
    splits = opened(tfds)
    assert (len(splits.train), len(splits.val), splits.train.classes) == (6, 3, ["ape", "cat", "dog"])
    (tfds / "pets-train.tfrecord-00001-of-00003").unlink()
    assert_helpful(refused(tfds), "1 of 3 files are missing", "pets-train.tfrecord-00001-of-00003", "-*-of-00003")
    assert len(opened(tfds / "pets-train.tfrecord-*-of-00003").train) == 4
    slim = tmp_path / "slim"
    slim.mkdir()
    write_tfrecord(slim / "train-00000-of-00001", pictures(4))
    write_tfrecord(slim / "validation-00000-of-00001", pictures(3))
    (slim / "notes-00000-of-00001").write_text("no TFRecord")
    assert recognise(str(slim))[0] == "tfrecord"
    assert (len(opened(slim).train), len(opened(slim).val)) == (4, 3)


def test_archives_beside_unpacked_class_folders(tmp_path: Path) -> None:
    write_images(tmp_path / "train", {"ape": 2, "cat": 2})
    write_wds(tmp_path / "train.tar", pictures(2))
    assert recognise(str(tmp_path))[0] == "folder"


def test_content_where_a_name_says_nothing(tmp_path: Path) -> None:
    for write, name in ((write_rec, "rec"), (write_tfrecord, "tfrecord"), (write_wds, "wds")):
        path = write(tmp_path / f"{name}.data", pictures(2))
        assert recognise(str(path)) == (name, path)
    (tmp_path / "empty.data").write_bytes(b"")
    assert_helpful(refused(tmp_path / "empty.data"), "no data of a known format")


def test_numbered_classes_of_both_parts(tmp_path: Path) -> None:
    write_rec(tmp_path / "train.rec", pictures(4, classes=2))
    write_rec(tmp_path / "val.rec", pictures(5, classes=5))
    assert opened(tmp_path).train.classes == opened(tmp_path).val.classes == ["0", "1", "2", "3", "4"]
    with pytest.raises(UserError) as caught:
        opened(tmp_path / "train.rec", val=str(tmp_path / "val.rec"))
    assert_helpful(caught.value, "classes that are not among")
