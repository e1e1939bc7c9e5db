"""Split words in names, as people write them."""

from pathlib import Path

import pytest

from phalanx.data.sources.splits import Split, split_folders, split_word
from tests.data.shard_files import pictures, write_rec
from tests.data.sources.trees import opened


@pytest.mark.parametrize(
    ("names", "found"),
    [
        (["train", "val", "test"], {"train": ["train"], "val": ["val"], "test": ["test"]}),
        (["TRAIN", "Valid"], {"train": ["TRAIN"], "val": ["Valid"]}),
        (["seg_train", "seg_test", "seg_pred"], {"train": ["seg_train"], "test": ["seg_test"]}),
        (["TrainingSet", "testing_images"], {"train": ["TrainingSet"], "test": ["testing_images"]}),
        (["asl_alphabet_train", "asl_alphabet_test"], {"train": ["asl_alphabet_train"], "test": ["asl_alphabet_test"]}),
        (["train", "train_images", "Test", "test-multiple"], {"train": ["train"], "test": ["Test"]}),
        (["train", "Train"], {"train": ["train", "Train"]}),
        (["bullet train", "test tube", "terrain", "trainers"], {}),
        (["steam_train", "diesel_train"], {}),
    ],
)
def test_folders_of_splits(names: list[str], found: dict[Split, list[str]]) -> None:
    assert split_folders(names) == found


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("trainLabels.csv", "train"),
        ("ISIC2018_Task3_Training_Input", "train"),
        ("TEST", "test"),
        ("val_list.txt", "val"),
        ("trains", None),
        ("invalid", None),
        ("images", None),
    ],
)
def test_splits_in_names(name: str, split: str | None) -> None:
    assert split_word(name) == split


def test_shards_of_splits_in_any_case(tmp_path: Path) -> None:
    for name, count in (("Training", 4), ("Validation", 3), ("Testing", 2)):
        (tmp_path / name).mkdir()
        write_rec(tmp_path / name / "data.rec", pictures(count, classes=2))
    splits = opened(tmp_path)
    assert (len(splits.train), len(splits.val)) == (4, 3)
    assert splits.notes == [f"1 test files in {tmp_path} are not used, since there is val: data.rec …"]
