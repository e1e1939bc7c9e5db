"""Datasets as they are published or as Kaggle gives them out, in tiny: the rows of the guide's table of layouts."""

from pathlib import Path

import pytest

from phalanx.config.schema import DataConfig
from phalanx.data.sources.formats import recognise
from phalanx.data.sources.layouts.lists_beside import find_lists
from phalanx.data.sources.open import open_split
from phalanx.errors import UserError
from tests.data.samples import REAL, assert_helpful, needs_real_data
from tests.data.sources.trees import by_class, classes, make_tree, opened, several

SCENES = ["buildings", "forest", "glacier"]


def refused(source: str | Path) -> UserError:
    with pytest.raises(UserError) as caught:
        opened(source)
    return caught.value


def test_intel_scenes(tmp_path: Path) -> None:
    """seg_train/seg_train/<class>, seg_test/seg_test/<class>, seg_pred/seg_pred/ without classes."""
    make_tree(tmp_path, *classes("seg_train/seg_train", SCENES, 3), *classes("seg_test/seg_test", SCENES))
    make_tree(tmp_path, *several("seg_pred/seg_pred", 4))
    splits = opened(tmp_path)
    assert splits.train.classes == SCENES
    assert (len(splits.train), len(splits.val)) == (9, 6)
    assert splits.notes == [
        f"class folders found in {tmp_path / 'seg_train/seg_train'}: buildings, forest, glacier (3 classes)",
        "folders with images that are in no class are left out: seg_pred",
        f"validation: {tmp_path / 'seg_test'} (there is no val folder beside it)",
    ]
    assert by_class(splits.val, tmp_path)["forest"][0] == "seg_test/seg_test/forest/forest_0.jpg"


def flowers102(folder: Path) -> Path:
    """PaddleClas's layout; labels count from 0."""
    make_tree(folder, *(f"jpg/image_{i:05}.jpg" for i in range(12)))
    lines = [f"jpg/image_{i:05}.jpg {i % 3}\n" for i in range(12)]
    for name, part in (("train", lines[:6]), ("val", lines[6:9]), ("test", lines[9:])):
        (folder / f"{name}_list.txt").write_text("".join(part))
    (folder / "flowers102_label_list.txt").write_text("0 pink primrose\n1 globe thistle\n2 fire lily\n")
    return folder


@pytest.mark.parametrize("above", ["", "data"])
def test_flowers102_of_paddleclas(tmp_path: Path, above: str) -> None:
    folder = flowers102(tmp_path / above / "flowers102")
    splits = opened(tmp_path / above)
    assert splits.train.classes == splits.val.classes == ["pink primrose", "globe thistle", "fire lily"]
    assert (len(splits.train), splits.val.labels.tolist()) == (6, [0, 1, 2])
    assert by_class(splits.train, folder)["fire lily"] == ["jpg/image_00002.jpg", "jpg/image_00005.jpg"]
    said = "\n".join(splits.notes)
    assert f"labels: {folder / 'train_list.txt'}, found beside the images" in said
    assert f"{folder / 'test_list.txt'} is not used, since there is val_list.txt" in said
    assert "flowers102_label_list.txt, 0 is pink primrose" in said
    assert recognise(f"folder:{tmp_path / above}")[0] == "folder"


def test_lists_that_start_from_the_folder_of_images(tmp_path: Path) -> None:
    make_tree(tmp_path, *(f"images/{i}.png" for i in range(6)), "requirements.txt", "notes.txt")
    (tmp_path / "train.txt").write_text("".join(f"{i}.png {'ab'[i % 2]}\n" for i in range(4)))
    (tmp_path / "val.txt").write_text("4.png a\n5.png b\n")
    splits = opened(tmp_path)
    assert (splits.train.classes, splits.train.labels.tolist()) == (["a", "b"], [0, 1, 0, 1])
    assert by_class(splits.val, tmp_path) == {"a": ["images/4.png"], "b": ["images/5.png"]}


def test_two_lists_of_one_split(tmp_path: Path) -> None:
    make_tree(tmp_path, "images/0.png", "images/1.png")
    for name in ("train.txt", "train.lst"):
        (tmp_path / name).write_text("images/0.png a\nimages/1.png b\n")
    assert_helpful(refused(tmp_path), "several lists of the same split: train.lst, train.txt", "--data")


def test_a_test_list_without_labels_is_told(tmp_path: Path) -> None:
    make_tree(tmp_path, *(f"images/{i}.png" for i in range(9)))
    (tmp_path / "train.txt").write_text("".join(f"images/{i}.png {'ab'[i % 2]}\n" for i in range(8)))
    (tmp_path / "test.txt").write_text("images/8.png unknown\n")
    splits = opened(tmp_path)
    assert (len(splits.train), len(splits.val)) == (6, 2)
    assert (
        f"{tmp_path / 'test.txt'} is not used: {tmp_path / 'test.txt'}, line 1: unknown label 'unknown'" in splits.notes
    )
    assert_helpful(refused(f"folder:{tmp_path}"), "all 9 images", "one class: 'images'")


def test_other_texts_are_no_lists(tmp_path: Path) -> None:
    make_tree(tmp_path, *classes("", SCENES), "notes.txt", "requirements.txt")
    (tmp_path / "train_log.txt").write_text("epoch 1\nepoch 2\n")
    (tmp_path / "train.csv").write_text("id,label\nmissing_1.jpg,3\nmissing_2.jpg,4\n")
    (tmp_path / "sizes.csv").write_text("file,height\nforest/forest_0.jpg,4\nforest/forest_1.jpg,4\n")
    (tmp_path / "pairs_train.txt").write_text("forest/forest_0.jpg forest/forest_1.jpg\n")
    assert recognise(str(tmp_path))[0] == "folder"
    assert opened(tmp_path).train.classes == SCENES


@pytest.mark.parametrize(
    ("name", "rows"),
    [
        ("train.csv", "id,label\nx_0,cat\nx_1,dog\n"),
        ("trainLabels.csv", "image,level\nx_0,0\nx_1,2\n"),
        ("labels.csv", "id,breed\nx_0,boston_bull\nx_1,dingo\n"),
        ("train.tsv", "image\tlabel\nx_0.jpg\tcat\nx_1.jpg\tdog\n"),
    ],
)
def test_tables_of_kaggle_beside_flat_images_are_found(tmp_path: Path, name: str, rows: str) -> None:
    make_tree(tmp_path, "train/x_0.jpg", "train/x_1.jpg", "sample_submission.csv")
    (tmp_path / name).write_text(rows)
    found = find_lists(tmp_path)
    assert found is not None
    assert (found.train.path, found.train.root, found.val) == (tmp_path / name, tmp_path / "train", None)
    assert recognise(str(tmp_path)) == ("list", tmp_path)


def test_lists_beside_class_folders_keep_the_names_of_the_folders(tmp_path: Path) -> None:
    """ImageNet of PaddleClas: train/<wnid>/, a flat val/, and lists with numbers."""
    make_tree(tmp_path, *classes("train", ["n01440764", "n01443537"]), *(f"val/{i}.JPEG" for i in range(3)))
    lines = [
        f"train/{name}/{name}_{i}.jpg {label}\n"
        for label, name in enumerate(["n01440764", "n01443537"])
        for i in (0, 1)
    ]
    (tmp_path / "train_list.txt").write_text("".join(lines))
    (tmp_path / "val_list.txt").write_text("val/0.JPEG 1\nval/1.JPEG 0\nval/2.JPEG 1\n")
    splits = opened(tmp_path)
    assert splits.train.classes == ["n01440764", "n01443537"]
    assert splits.val.labels.tolist() == [1, 0, 1]


def test_cats_and_dogs_of_microsoft(tmp_path: Path) -> None:
    make_tree(tmp_path, *classes("PetImages", ["Cat", "Dog"], 4), "readme[1].txt", "PetImages/Cat/Thumbs.db")
    splits = opened(tmp_path)
    assert splits.train.classes == ["Cat", "Dog"]
    assert f"class folders found in {tmp_path / 'PetImages'}: Cat, Dog (2 classes)" in splits.notes


def tiny_imagenet(folder: Path) -> Path:
    wnids = ["n01443537", "n01629819"]
    make_tree(folder, *(f"train/{name}/images/{name}_{i}.JPEG" for name in wnids for i in range(3)))
    make_tree(folder, *(f"train/{name}/{name}_boxes.txt" for name in wnids))
    make_tree(
        folder, *(f"val/images/val_{i}.JPEG" for i in range(4)), *(f"test/images/test_{i}.JPEG" for i in range(2))
    )
    boxes = "\t0\t32\t44\t62"
    lines = [f"val_{i}.JPEG\t{wnids[i < 3]}{boxes}\n" for i in range(4)]
    (folder / "val" / "val_annotations.txt").write_text("".join(lines))
    (folder / "wnids.txt").write_text("".join(f"{name}\n" for name in wnids))
    (folder / "words.txt").write_text("n01443537\tgoldfish, Carassius auratus\nn01629819\tEuropean fire salamander\n")
    return folder


def test_tiny_imagenet(tmp_path: Path) -> None:
    folder = tiny_imagenet(tmp_path / "tiny-imagenet-200")
    splits = opened(tmp_path)
    assert splits.train.classes == ["n01443537", "n01629819"]
    assert (len(splits.train), splits.val.labels.tolist()) == (6, [1, 1, 1, 0])
    assert by_class(splits.train, folder)["n01629819"][0] == "train/n01629819/images/n01629819_0.JPEG"
    said = "\n".join(splits.notes)
    assert f"labels of {folder / 'val/images'}: {folder / 'val/val_annotations.txt'}, found beside it" in said
    assert f"{folder / 'test'} is not used" in said
    alone = open_split(str(folder / "val"), DataConfig(), splits.train.classes, threads=0)
    assert alone.labels.tolist() == [1, 1, 1, 0]


def test_imagenet_of_kaggle(tmp_path: Path) -> None:
    """ILSVRC/Data/CLS-LOC/train/<wnid>/, flat val/ and test/, boxes in Annotations/, a CSV with the labels."""
    wnids = ["n01440764", "n01443537"]
    data = tmp_path / "ILSVRC" / "Data" / "CLS-LOC"
    make_tree(data, *(f"train/{name}/{name}_{i}.JPEG" for name in wnids for i in (1, 2)))
    make_tree(data, *(f"val/ILSVRC2012_val_{i:08}.JPEG" for i in (1, 2, 3)), "test/ILSVRC2012_test_00000001.JPEG")
    make_tree(tmp_path, *(f"ILSVRC/Annotations/CLS-LOC/train/{name}/{name}_1.xml" for name in wnids))
    rows = [f"ILSVRC2012_val_{i:08},{wnids[i % 2]} 85 1 499 272 \n" for i in (2, 1, 3)]
    (tmp_path / "LOC_val_solution.csv").write_text("".join(["ImageId,PredictionString\n", *rows]))
    (tmp_path / "LOC_synset_mapping.txt").write_text("n01440764 tench, Tinca tinca\nn01443537 goldfish\n")
    splits = opened(tmp_path)
    assert (splits.train.classes, splits.val.labels.tolist()) == (wnids, [1, 0, 1])
    assert f"class folders found in {data / 'train'}: n01440764, n01443537 (2 classes)" in splits.notes


def test_imagenet_with_a_flat_validation_folder_and_numbers(tmp_path: Path) -> None:
    """val.txt of Caffe counts the sorted wnids."""
    make_tree(tmp_path, *classes("train", ["n01440764", "n01443537"]), *(f"val/v{i}.JPEG" for i in range(3)))
    (tmp_path / "val.txt").write_text("v1.JPEG 0\nv0.JPEG 1\nv2.JPEG 1\n")
    splits = opened(tmp_path)
    assert splits.val.labels.tolist() == [1, 0, 1]
    assert "matched by number: 0 is n01440764" in "\n".join(splits.notes)
    (tmp_path / "val.txt").write_text("v1.JPEG 0\nv0.JPEG 7\nv2.JPEG 1\n")
    assert_helpful(refused(tmp_path), "3 images", "have no labels", "data.val_labels")


def test_caltech101(tmp_path: Path) -> None:
    names = ["BACKGROUND_Google", "Faces", "accordion"]
    make_tree(tmp_path, *classes("caltech-101/101_ObjectCategories", names), "caltech-101/Annotations.tar", "show.m")
    splits = opened(tmp_path)
    assert splits.train.classes == names
    assert "BACKGROUND_Google" in splits.notes[0]


@pytest.mark.parametrize("level", ["2750", "EuroSAT/2750", "EuroSAT_RGB"])
def test_eurosat(tmp_path: Path, level: str) -> None:
    make_tree(tmp_path, *classes(level, ["AnnualCrop", "Forest", "River"]))
    assert opened(tmp_path).train.classes == ["AnnualCrop", "Forest", "River"]


def test_stanford_dogs(tmp_path: Path) -> None:
    dogs = ["n02085620-Chihuahua", "n02085782-Japanese_spaniel"]
    make_tree(
        tmp_path, *classes("Images", dogs), *(f"Annotation/{name}/{name}_1" for name in dogs), "lists/file_list.mat"
    )
    splits = opened(tmp_path)
    assert splits.train.classes == dogs
    assert len(splits.train) + len(splits.val) == 4


def food101(folder: Path) -> Path:
    foods = ["apple_pie", "hot dog", "waffles"]
    make_tree(folder, *(f"images/{name}/{i}.jpg" for name in foods for i in range(4)), "README.txt")
    (folder / "meta").mkdir()
    (folder / "meta" / "train.txt").write_text("".join(f"{name}/{i}\n" for name in foods for i in (1, 3)))
    (folder / "meta" / "test.txt").write_text("".join(f"{name}/{i}\n" for name in foods for i in (0,)))
    (folder / "meta" / "classes.txt").write_text("\n".join(foods))
    return folder


def test_food101(tmp_path: Path) -> None:
    folder = food101(tmp_path / "food-101")
    for path in (folder, tmp_path):
        splits = opened(path)
        assert splits.train.classes == ["apple_pie", "hot dog", "waffles"]
        assert by_class(splits.train, folder)["hot dog"] == ["images/hot dog/1.jpg", "images/hot dog/3.jpg"]
        assert by_class(splits.val, folder)["waffles"] == ["images/waffles/0.jpg"]
        said = "\n".join(splits.notes)
        assert f"training images by {folder / 'meta/train.txt'}: 6 of 12" in said
        assert f"validation images by {folder / 'meta/test.txt'}: 3 of 12" in said


def test_lists_of_splits_beside_the_class_folders(tmp_path: Path) -> None:
    make_tree(tmp_path, *classes("", SCENES, 3))
    (tmp_path / "train.txt").write_text("".join(f"./{name}/{name}_{i}.jpg\n" for name in SCENES for i in (0, 1)))
    (tmp_path / "val.txt").write_text("".join(f"{name}/{name}_2.jpg\n" for name in SCENES) + "forest/gone.jpg\n")
    splits = opened(tmp_path)
    assert (len(splits.train), len(splits.val)) == (6, 3)
    assert f"1 lines of {tmp_path / 'val.txt'} name no image that is there: forest/gone.jpg …" in splits.notes


def test_oxford_pets(tmp_path: Path) -> None:
    """The class is in the file's name: said, with what to write."""
    names = [f"images/{breed}_{i}.jpg" for breed in ("Abyssinian", "beagle", "pug") for i in (1, 2)]
    make_tree(tmp_path, *names)
    (tmp_path / "annotations").mkdir()
    (tmp_path / "annotations" / "trainval.txt").write_text("Abyssinian_1 1 1 1\nbeagle_1 2 2 1\n")
    error = refused(tmp_path)
    assert_helpful(error, "6 images", "images", "Abyssinian_1.jpg", "class folders")


def test_mnist_as_png(tmp_path: Path) -> None:
    digits = [str(digit) for digit in range(10)]
    make_tree(
        tmp_path, *classes("mnist_png/training", digits, 2, ".png"), *classes("mnist_png/testing", digits, 1, ".png")
    )
    splits = opened(tmp_path)
    assert (splits.train.classes, len(splits.train), len(splits.val)) == (digits, 20, 10)


@needs_real_data
def test_real_sets_one_level_up(tmp_path: Path) -> None:
    (tmp_path / "pets").symlink_to(REAL / "pets")
    pets = opened(tmp_path)
    assert (len(pets.train.classes), len(pets.train), len(pets.val)) == (10, 184, 20)
    (tmp_path / "nette").mkdir()
    (tmp_path / "nette" / "imagenette").symlink_to(REAL / "imagenette224")
    nette = opened(tmp_path / "nette")
    assert (len(nette.train), len(nette.val)) == (1500, 500)
