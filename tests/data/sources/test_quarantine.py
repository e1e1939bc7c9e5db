"""Samples that a list names are left out when data is opened."""

from pathlib import Path

import numpy as np
import pytest

from phalanx.config.schema import DataConfig
from phalanx.data.base import Source
from phalanx.data.sources.open import Splits, open_data, open_split
from phalanx.errors import UserError
from tests.data.pack.packs import pack_folder, parts_of, write_dataset
from tests.data.samples import assert_helpful, write_images
from tests.data.sources.test_cifar import write_cifar10


def opened(source: Path | str, quarantine: Path) -> Splits:
    return open_data(DataConfig(source=str(source), quarantine=quarantine), threads=0)


def names(source: Source) -> list[str]:
    return [source.name(index) for index in range(len(source))]


def test_samples_are_left_out_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_images(tmp_path / "d" / "train", {"ape": 3, "cat": 2})
    write_images(tmp_path / "d" / "val", {"ape": 2, "cat": 1})
    bad = tmp_path / "bad.txt"
    bad.write_text(
        f"{tmp_path}/d/train/ape/1.png\tit is broken\n\n{tmp_path}/d/val/cat/0.png\n{tmp_path}/d/gone.png\t\n"
    )
    monkeypatch.chdir(tmp_path)
    for source in (tmp_path / "d", "d", "d/../d"):
        splits = opened(source, bad)
        assert (splits.train.labels.tolist(), splits.val.labels.tolist()) == ([0, 0, 1, 1], [0, 0])
        assert [name.rpartition("/")[2] for name in names(splits.train)] == ["0.png", "2.png", "0.png", "1.png"]
        assert "2 samples are left out" in splits.notes[-2]
        assert "1 names in" in splits.notes[-1]
        assert "gone.png" in splits.notes[-1]
    val = open_split("d", DataConfig(quarantine=bad), ["ape", "cat"], threads=0)
    assert (val.labels.tolist(), val.classes) == ([0, 0], ["ape", "cat"])


def test_a_sample_stays_in_its_split_when_others_are_left_out(tmp_path: Path) -> None:
    write_images(tmp_path / "d", {"ape": 20, "cat": 20})
    (tmp_path / "bad.txt").write_text(f"{tmp_path}/d/ape/3.png\n")
    before = open_data(DataConfig(source=str(tmp_path / "d")), threads=0)
    after = opened(tmp_path / "d", tmp_path / "bad.txt")
    gone = f"{tmp_path}/d/ape/3.png"
    assert names(after.val) == [name for name in names(before.val) if name != gone]
    assert names(after.train) == [name for name in names(before.train) if name != gone]


@pytest.mark.parametrize("form", ["wds", "rec", "raw"])
def test_samples_in_large_files(form: str, tmp_path: Path) -> None:
    pack_folder(write_dataset(tmp_path / "d"), tmp_path / "p", form, shards=3)
    all_names = names(parts_of(tmp_path / "p")["train"])
    (tmp_path / "bad.tsv").write_text(f"{all_names[5]}\tbroken\n{all_names[11]}\tbroken\n")
    train = opened(tmp_path / "p", tmp_path / "bad.tsv").train
    assert names(train) == [name for name in all_names if name not in (all_names[5], all_names[11])]


def test_samples_without_a_file_of_their_own(tmp_path: Path) -> None:
    write_cifar10(tmp_path / "c")
    (tmp_path / "bad.tsv").write_text("cifar-10 train #3\tlooks odd\ncifar-10 val #0\t\n")
    splits = opened(tmp_path / "c", tmp_path / "bad.tsv")
    np.testing.assert_array_equal(splits.train.labels, [0, 1, 2, 4, 5, 6, 7, 8, 9])
    assert len(splits.val) == 2


def test_lists_that_cannot_be_used(tmp_path: Path) -> None:
    write_images(tmp_path / "d" / "train", {"ape": 2, "cat": 2})
    write_images(tmp_path / "d" / "val", {"ape": 1})
    with pytest.raises(UserError) as caught:
        opened(tmp_path / "d", tmp_path / "none.txt")
    assert_helpful(caught.value, "none.txt", "data verify")
    (tmp_path / "all.txt").write_text(f"{tmp_path}/d/val/ape/0.png\n")
    with pytest.raises(UserError) as caught:
        opened(tmp_path / "d", tmp_path / "all.txt")
    assert_helpful(caught.value, "every sample", "all.txt")
