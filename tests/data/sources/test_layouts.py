"""Layouts of folders as people have them: the classes that are meant, or a refusal that says what to write."""

from pathlib import Path

import pytest

from phalanx.config.schema import DataConfig
from phalanx.data.sources.open import open_parts, open_split
from phalanx.errors import UserError
from tests.data.samples import assert_helpful
from tests.data.sources.trees import by_class, classes, make_tree, opened, several

CATS = ["cat", "dog", "eel"]


def refused(source: str | Path, **settings: object) -> UserError:
    with pytest.raises(UserError) as caught:
        opened(source, **settings)
    return caught.value


# One level too many


@pytest.mark.parametrize("level", ["images", "data/images", "archive/dataset/pictures/all"])
def test_the_level_of_the_classes_is_found_and_told(tmp_path: Path, level: str) -> None:
    beside = ("README.md", "LICENSE", ".git/config", "scripts/train.py", "docs/index.md")
    make_tree(tmp_path, *classes(level, CATS, 4), *beside)
    splits = opened(tmp_path)
    assert splits.train.classes == CATS
    assert (len(splits.train), len(splits.val)) == (9, 3)
    assert f"class folders found in {tmp_path / level}: cat, dog, eel (3 classes)" in splits.notes
    assert f"hidden and system folders in {tmp_path} are left out: .git" in splits.notes


def test_pictures_in_the_documentation_are_no_class(tmp_path: Path) -> None:
    make_tree(tmp_path, *classes("images", CATS, 4), "docs/figure.png", "assets/logo.png", "banner.png")
    splits = opened(tmp_path)
    assert splits.train.classes == CATS
    assert "folders with images that are in no class are left out: assets, docs" in splits.notes


def test_a_level_with_a_stray_image_is_still_one(tmp_path: Path) -> None:
    make_tree(tmp_path, *classes("images", CATS), "images/overview.png")
    splits = opened(tmp_path)
    assert splits.train.classes == CATS
    assert f"1 images directly in {tmp_path / 'images'} belong to no class and are left out" in splits.notes


def test_many_classes_are_shown_by_the_first(tmp_path: Path) -> None:
    make_tree(tmp_path, *classes("images", [f"n{i:02}" for i in range(37)]))
    assert (
        f"class folders found in {tmp_path / 'images'}: n00, n01, n02, n03, n04 … (37 classes)"
        in opened(tmp_path).notes
    )


def test_one_class_is_refused_with_what_was_seen(tmp_path: Path) -> None:
    make_tree(tmp_path, *several("photos", 5), "README.md")
    error = refused(tmp_path)
    assert_helpful(
        error, "all 5 images", "one class: 'photos'", "photos/ (5 images)", "README.md", "`photos/photos_0.jpg photos`"
    )
    make_tree(tmp_path, *several("train/cat", 3), *several("val/cat", 2))
    assert_helpful(refused(tmp_path / "train"), "one class: 'cat'", "cat/ (3 images)")


def test_one_class_can_be_looked_at_and_evaluated(tmp_path: Path) -> None:
    make_tree(tmp_path, *several("cat", 3))
    parts, notes = open_parts(DataConfig(source=str(tmp_path)), threads=0)
    assert (len(parts["train"]), "training refuses" in notes[-1]) == (3, True)
    assert open_split(str(tmp_path), DataConfig(), ["ape", "cat"], threads=0).labels.tolist() == [1, 1, 1]


def test_a_list_of_one_class_is_refused(tmp_path: Path) -> None:
    make_tree(tmp_path, *several("x", 4))
    (tmp_path / "all.lst").write_text("".join(f"{i}\t3.0\tx/x_{i}.jpg\n" for i in range(4)))
    assert_helpful(refused(tmp_path / "all.lst"), "all 4 images", "'3'", "list")


# Splits


@pytest.mark.parametrize(
    ("train", "val"),
    [
        ("Train", "Valid"),
        ("TRAIN", "VAL"),
        ("training", "validation"),
        ("train_set", "val_set"),
        ("Training Data", "Validation Data"),
        ("trainset", "devset"),
        ("images/train", "images/val"),
        ("archive/dataset/train", "archive/dataset/val"),
        ("flowers_train", "flowers_val"),
        ("train2017", "val2017"),
    ],
)
def test_splits_by_their_usual_names(tmp_path: Path, train: str, val: str) -> None:
    make_tree(tmp_path, *classes(train, CATS), *classes(val, CATS[1:]))
    splits = opened(tmp_path)
    assert splits.train.classes == splits.val.classes == CATS
    assert (len(splits.train), splits.val.labels.tolist()) == (6, [1, 1, 2, 2])
    assert by_class(splits.val, tmp_path)["eel"] == [f"{val}/eel/eel_0.jpg", f"{val}/eel/eel_1.jpg"]


@pytest.mark.parametrize(
    ("train", "test"), [("training", "testing"), ("Train", "Test"), ("train", "eval"), ("training_set", "test_set")]
)
def test_test_data_is_validation_where_there_is_no_other(tmp_path: Path, train: str, test: str) -> None:
    make_tree(tmp_path, *classes(train, CATS), *classes(test, CATS, 1))
    splits = opened(tmp_path)
    assert (splits.train.classes, len(splits.val)) == (CATS, 3)
    assert f"validation: {tmp_path / test} (there is no val folder beside it)" in splits.notes


def test_test_data_beside_validation_data_is_told(tmp_path: Path) -> None:
    make_tree(tmp_path, *classes("train", CATS), *classes("val", CATS, 1), *classes("test", CATS, 3))
    splits = opened(tmp_path)
    assert len(splits.val) == 3
    assert splits.notes == [f"{tmp_path / 'test'} is not used: validation is {tmp_path / 'val'}"]


def test_test_images_without_labels_are_told_and_left_out(tmp_path: Path) -> None:
    make_tree(tmp_path, *classes("train", CATS, 4), *several("test", 5))
    splits = opened(tmp_path)
    assert (len(splits.train), len(splits.val)) == (9, 3)
    assert f"{tmp_path / 'test'} is not used: its 5 images are in no class folders" in splits.notes


def test_folders_beside_the_splits_are_told(tmp_path: Path) -> None:
    beside = (*classes("chest_xray/train", CATS), "__MACOSX/train/cat/._1.jpg", *several("extra", 2))
    make_tree(tmp_path, *classes("train", CATS), *classes("val", CATS), *beside)
    splits = opened(tmp_path)
    assert len(splits.train) == 6
    assert "folders with images that are in no class are left out: chest_xray, extra" in splits.notes
    assert f"hidden and system folders in {tmp_path} are left out: __MACOSX" in splits.notes


def test_a_class_may_have_the_name_of_a_split(tmp_path: Path) -> None:
    make_tree(tmp_path, *several("car", 2), *several("train", 2), *several("bus", 2))
    assert opened(tmp_path).train.classes == ["bus", "car", "train"]
    assert open_split(str(tmp_path), DataConfig(), ["bus", "car", "train"], threads=0).labels.tolist() == [
        0,
        0,
        1,
        1,
        2,
        2,
    ]


def test_classes_in_each_of_which_are_the_splits(tmp_path: Path) -> None:
    make_tree(tmp_path, *classes("", ["cat/train", "dog/train"], 3), *classes("", ["cat/test", "dog/test"], 2))
    splits = opened(tmp_path)
    assert splits.train.classes == ["cat", "dog"]
    assert by_class(splits.train, tmp_path)["dog"] == [f"dog/train/train_{i}.jpg" for i in range(3)]
    assert by_class(splits.val, tmp_path)["cat"] == [f"cat/test/test_{i}.jpg" for i in range(2)]
    assert f"each class folder has the splits inside: {tmp_path}/cat/train and test" in splits.notes


# What would be a guess


def test_splits_without_labels(tmp_path: Path) -> None:
    """Kaggle's dogs-vs-cats: the class is in the file's name."""
    make_tree(tmp_path, "train/cat.0.jpg", "train/dog.0.jpg", "test/1.jpg")
    assert_helpful(
        refused(tmp_path),
        f"{tmp_path / 'train'} holds 2 images and no class folders",
        "`train/cat.0.jpg cat`",
        "train.txt",
    )
    assert_helpful(refused(tmp_path / "train"), "holds no class folders", "cat.0.jpg")


def test_several_datasets(tmp_path: Path) -> None:
    names = [f"{name}/{split}" for name in ("cats_dogs", "flowers") for split in ("train", "val")]
    make_tree(tmp_path, *(image for name in names for image in classes(name, CATS)))
    assert_helpful(refused(tmp_path), "2 datasets: cats_dogs, flowers", f"--data {tmp_path / 'cats_dogs'}")


def test_classes_that_hold_only_folders(tmp_path: Path) -> None:
    make_tree(tmp_path, *classes("sparrow", ["house", "tree"]), *classes("owl", ["barn", "snowy"]))
    assert_helpful(refused(tmp_path), "owl/ holds the folders barn, snowy", "data.class_level=1", "data.class_level=2")
    assert opened(tmp_path, class_level=1).train.classes == ["owl", "sparrow"]
    assert opened(tmp_path, class_level=2).train.classes == ["barn", "house", "snowy", "tree"]
    assert_helpful(refused(tmp_path, class_level=3), "no folders at level 3", "at most 2 levels")


def test_the_same_classes_in_several_folders(tmp_path: Path) -> None:
    """PlantVillage: color/, grayscale/ and segmented/, each with all classes."""
    make_tree(tmp_path, *classes("color", CATS), *classes("grayscale", CATS), *classes("segmented", CATS))
    assert_helpful(refused(tmp_path), "color/ holds the folders cat, dog, eel", f"--data {tmp_path / 'color'}")
    merged = opened(tmp_path, class_level=2)
    assert (merged.train.classes, len(merged.train) + len(merged.val)) == (CATS, 18)


def test_the_level_counts_from_the_splits(tmp_path: Path) -> None:
    for split, count in (("train", 3), ("val", 1)):
        make_tree(
            tmp_path, *classes(f"{split}/birds", ["owl", "wren"], count), *classes(f"{split}/fish", ["eel"], count)
        )
    assert_helpful(refused(tmp_path), "birds/ holds the folders owl, wren", "directly in fish")
    outer, inner = opened(tmp_path, class_level=1), opened(tmp_path, class_level=2)
    assert (outer.train.classes, outer.val.labels.tolist()) == (["birds", "fish"], [0, 0, 1])
    assert (inner.train.classes, inner.val.labels.tolist()) == (["eel", "owl", "wren"], [0, 1, 2])


def test_a_class_among_others_that_holds_only_folders(tmp_path: Path) -> None:
    make_tree(tmp_path, *classes("", ["car", "bus"]), *classes("birds", ["owl", "wren"]))
    assert_helpful(refused(tmp_path), "birds/ holds the folders owl, wren", "directly in bus, car")
    make_tree(tmp_path, "birds/list.png")
    assert_helpful(refused(tmp_path), f"{tmp_path / 'birds'} is a class or holds classes", "1 images", "owl, wren")
    assert opened(tmp_path, class_level=1).train.classes == ["birds", "bus", "car"]
    known = open_split(str(tmp_path), DataConfig(), ["birds", "bus", "car"], threads=0)
    assert known.labels.tolist() == [0] * 5 + [1] * 2 + [2] * 2


def test_a_training_folder_beside_classes(tmp_path: Path) -> None:
    make_tree(tmp_path, *classes("", ["car", "bus"]), *classes("train", ["steam", "diesel"]))
    assert_helpful(refused(tmp_path), f"{tmp_path / 'train'} is the training split or a class", "bus, car")


def test_two_folders_of_one_split(tmp_path: Path) -> None:
    make_tree(tmp_path, *classes("train", CATS), *classes("Training", CATS), *classes("val", CATS))
    assert_helpful(refused(tmp_path), "several folders for the split train: Training, train")


def test_parts_of_one_set_are_no_classes(tmp_path: Path) -> None:
    """HAM10000 and others number the folders of one heap of images."""
    make_tree(tmp_path, *several("HAM10000_images_part_1", 2), *several("HAM10000_images_part_2", 2), "meta.md")
    assert_helpful(refused(tmp_path), "look like parts", "HAM10000_images_part_1", "data.class_level=1")
    assert len(opened(tmp_path, class_level=1).train.classes) == 2


def test_no_images_at_all(tmp_path: Path) -> None:
    make_tree(tmp_path, "a/notes.txt", "b/", "README.md")
    assert_helpful(refused(tmp_path), "holds no images", "a/ (no images, 1 files such as notes.txt)", "README.md")


# What is told and left out


def test_empty_and_hidden_folders_are_told_and_left_out(tmp_path: Path) -> None:
    make_tree(tmp_path, *classes("", CATS), "void/", "empty/notes.txt", ".ipynb_checkpoints/cat-checkpoint.jpg")
    make_tree(tmp_path, "__MACOSX/cat/._cat_0.jpg", "@eaDir/cat_0.jpg/THUMB.jpg", "cat/._cat_0.jpg", "cat/Thumbs.db")
    make_tree(tmp_path, "dog/.ipynb_checkpoints/dog_0-checkpoint.jpg", "dog/@eaDir/dog_0.jpg/THUMB.jpg")
    splits = opened(tmp_path)
    assert splits.train.classes == CATS
    assert len(splits.train) + len(splits.val) == 6
    assert f"2 folders in {tmp_path} are without images and are no classes: empty, void" in splits.notes
    skipped = next(note for note in splits.notes if note.startswith("hidden and system folders"))
    assert ".ipynb_checkpoints (2 times), @eaDir (2 times), __MACOSX" in skipped
    assert f"2 files in {tmp_path} have no ending of an image and are left out" in splits.notes


def test_a_class_that_only_one_split_has_stays_a_class(tmp_path: Path) -> None:
    make_tree(tmp_path, *classes("train", CATS), "train/fox/", "train/void/", "val/cat/", "val/void/")
    make_tree(tmp_path, *classes("val", ["dog", "fox"]))
    splits = opened(tmp_path)
    assert splits.train.classes == ["cat", "dog", "eel", "fox"]
    assert splits.val.labels.tolist() == [1, 1, 3, 3]
    assert "1 classes have images only in the other split: fox" in splits.notes
