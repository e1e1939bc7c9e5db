"""Where the files of a list are: Kaggle's layouts, paths that were written elsewhere, and files that are missing."""

from pathlib import Path

import pandas
import pytest

from phalanx.config.schema import DataConfig
from phalanx.data.sources.lists.open import open_list
from phalanx.data.sources.open import open_data
from phalanx.errors import UserError
from tests.data.samples import assert_helpful
from tests.data.sources.lists.list_samples import (
    assert_same_as_pandas,
    assert_same_pixels,
    opened,
    refused,
    write_files,
    written,
)

IDS = ["000bec180eb18c7604dcecc8fe0dba07", "1", "train_2", "x.y"]
BREEDS = ["boston_bull", "dingo", "dingo", "pekinese"]


def write_table(path: Path, image: str, label: str) -> pandas.DataFrame:
    frame = pandas.DataFrame({image: IDS, label: BREEDS})
    path.parent.mkdir(parents=True, exist_ok=True)
    frame.to_csv(path, index=False)
    return frame


@pytest.mark.parametrize(
    ("table", "columns", "folder", "ending"),
    [
        ("labels.csv", ("id", "breed"), "train", ".jpg"),  # dog-breed-identification
        ("trainLabels.csv", ("id", "label"), "train", ".png"),  # cifar-10
        ("train.csv", ("image_id", "label"), "train_images", ".jpg"),  # cassava
        ("train.csv", ("id_code", "diagnosis"), "train_images", ".png"),  # aptos
        ("train_labels.csv", ("id", "label"), "train", ".tif"),  # histopathologic-cancer-detection
        ("train.csv", ("image_id", "label"), "images", ".jpg"),  # plant pathology
        ("train_v2.csv", ("image_name", "tags"), "train-jpg", ".jpg"),  # planet
        ("train.csv", ("id", "has_cactus"), "train/train", ".JPEG"),  # a zip file inside of its own folder
        ("Train.csv", ("ClassId", "Path"), "Train", ".png"),  # GTSRB; the columns are the other way round
        ("lists/train.csv", ("image", "label"), "images", ".jpeg"),
        ("ISIC_Training_GroundTruth/t.csv", ("image", "label"), "images", ".jpg"),
        ("ISIC_Training_GroundTruth/ISIC_Training_GroundTruth.csv", ("image", "label"), "ISIC_Training_Input", ".jpg"),
        ("meta.csv", ("image_id", "dx"), "pictures_of_skin", ".jpg"),
        ("train.csv", ("image", "label"), ".", ".jpg"),
    ],
)
def test_ids_without_an_ending(tmp_path: Path, table: str, columns: tuple[str, str], folder: str, ending: str) -> None:
    write_files(tmp_path / folder, [f"{name}{ending}" for name in IDS])
    if folder.startswith("train") and "rain" in table:  # the test images have the same names and no labels
        write_files(tmp_path / "test", [f"{name}{ending}" for name in IDS])
    image, label = columns if columns[0] != "ClassId" else columns[::-1]
    frame = write_table(tmp_path / table, image, label)[list(columns)]
    frame.to_csv(tmp_path / table, index=False)
    source = opened(tmp_path / table)
    assert_same_as_pandas(source, frame, lambda row: tmp_path / folder / f"{row[image]}{ending}", label)
    assert source.notes[0] == f"columns: image = {image!r}, label = {label!r} (3 classes)"
    assert source.notes[1].startswith("images: ")
    assert source.notes[1].endswith(f"/<{image}>{ending}")


def test_ids_of_several_endings(tmp_path: Path) -> None:
    names = ["a.jpg", "b.png", "c.jpg", "d.JPG", "e.jpg"]
    write_files(tmp_path / "images", names)
    source = written(tmp_path / "t.csv", "id,label\na,0\nb,0\nc,1\nd,1\ne.jpg,1\n")
    assert_same_pixels(source, [tmp_path / "images" / name for name in names])
    assert "2 names" in source.notes[-1]


def test_images_in_numbered_folders(tmp_path: Path) -> None:
    write_files(tmp_path, ["part_1/a.jpg", "part_1/b.jpg", "part_2/c.jpg", "other/z.jpg"])
    text = "image_id,dx\na,nv\nc,mel\nb,nv\n"
    source = written(tmp_path / "meta.csv", text)
    assert_same_pixels(source, [tmp_path / name for name in ("part_1/a.jpg", "part_2/c.jpg", "part_1/b.jpg")])
    assert "{part_1,part_2}/<image_id>.jpg" in source.notes[1]
    write_files(tmp_path / "nih", ["images_001/images/a.jpg", "images_002/images/b.jpg", "images_002/images/c.jpg"])
    assert len(written(tmp_path / "nih" / "Data_Entry.csv", text)) == 3
    write_files(tmp_path, ["part_2/b.jpg"])
    assert_helpful(refused(tmp_path / "meta.csv", text), "'b'", "part_1/b.jpg, part_2/b.jpg", "data.root")


def test_folders_that_nothing_tells_apart(tmp_path: Path) -> None:
    write_files(tmp_path, ["left/1.jpg", "left/2.jpg", "right/1.jpg", "right/2.jpg"])
    text = "id,label\n1,ape\n2,cat\n"
    assert_helpful(refused(tmp_path / "t.csv", text), "left", "right", "data.root")
    source = written(tmp_path / "t.csv", text, root=tmp_path / "right")
    assert_same_pixels(source, [tmp_path / "right" / "1.jpg", tmp_path / "right" / "2.jpg"])


def test_paths_of_one_split_are_not_found_in_another(tmp_path: Path) -> None:
    write_files(tmp_path, ["train/1.jpg", "train/2.jpg"])
    assert_helpful(refused(tmp_path / "val.txt", "val/1.jpg 0\nval/2.jpg 1\n"), "2 files", "val/1.jpg")
    source = written(tmp_path / "val.txt", "1.jpg 0\n2.jpg 1\n")  # a part of the training images
    assert_same_pixels(source, [tmp_path / "train/1.jpg", tmp_path / "train/2.jpg"])


def test_ids_with_a_title_go_before_other_files(tmp_path: Path) -> None:
    write_files(tmp_path, ["train/a.jpg", "train/b.jpg", "train/m1.png", "train/m2.png"])
    source = written(tmp_path / "train.csv", "id,mask,label\na,m1.png,0\nb,m2.png,1\n")
    assert_same_pixels(source, [tmp_path / "train/a.jpg", tmp_path / "train/b.jpg"])


def test_a_training_list_does_not_take_the_test_images(tmp_path: Path) -> None:
    write_files(tmp_path, ["test/1.jpg", "test/2.jpg"])
    assert_helpful(
        refused(tmp_path / "train.csv", "id,label\n1,ape\n2,cat\n"), "2 files that do not exist", "data.root"
    )


@pytest.mark.parametrize(
    ("written_as", "root"),
    [
        ("cat/{}", None),
        ("./cat/{}", None),
        ("/cat/{}", None),
        ("{folder}/cat/{}", None),
        ("cat\\{}", None),
        (".\\cat\\{}", None),
        ("C:\\Users\\ann\\data\\cat\\{}", None),
        ("/home/ann/data/cat/{}", None),
        ("data/cat/{}", None),  # relative to the folder above
        ("{}", "cat"),
        ("cat/{}", "."),
        ("pets/cat/{}", "."),
    ],
)
def test_paths_that_were_written_elsewhere(tmp_path: Path, written_as: str, root: str | None) -> None:
    folder = tmp_path / "data"
    names = ["one.jpg", "two dogs.jpg", "drei Käfer.jpg"]
    files = [folder / "cat" / name for name in names]
    write_files(folder / "cat", names)
    lines = [f"{written_as.format(name, folder=folder)}\t{i}\n" for i, name in enumerate(names)]
    source = written(folder / "all.txt", "".join(lines), root=None if root is None else folder / root)
    assert_same_pixels(source, files)
    assert source.labels.tolist() == [0, 1, 2]


def test_a_file_name_may_contain_a_backslash(tmp_path: Path) -> None:
    write_files(tmp_path, ["a\\b.png", "c.png"])
    source = written(tmp_path / "t.txt", "a\\b.png 0\nc.png 1\n")
    assert_same_pixels(source, [tmp_path / "a\\b.png", tmp_path / "c.png"])


def test_other_case_and_other_form_of_unicode(tmp_path: Path) -> None:
    names = ["IMG_1.JPG", "Ka\u0308fer.png", "x.png"]  # ä as two letters, as on a Mac
    write_files(tmp_path, names)
    source = written(tmp_path / "t.csv", "image,label\nimg_1.jpg,0\nK\u00e4fer.png,0\nx.png,1\n")
    assert_same_pixels(source, [tmp_path / name for name in names])
    assert "2 names" in source.notes[1]


def test_missing_files_are_left_out_and_told(tmp_path: Path) -> None:
    names = [f"{i}.png" for i in range(4)]
    write_files(tmp_path, names)
    rows = "".join(f"{i % 4}.png,{i % 2}\n" for i in range(298)) + "gone.png,1\naway/gone.png,7\n"
    source = written(tmp_path / "t.csv", f"image,label\n{rows}")
    assert (len(source), len(source.classes)) == (298, 8)
    assert "2 of 300 files in" in source.notes[-1]
    assert "gone.png, away/gone.png" in source.notes[-1]
    assert source.left_out == (
        (str(tmp_path / "gone.png"), "no such file"),
        (str(tmp_path / "away/gone.png"), "no such file"),
    )
    assert [source.name(i) for i in range(4)] == [str(tmp_path / name) for name in names]
    stop = refused(tmp_path / "t.csv", f"image,label\n{rows}", bad_images="stop")
    assert_helpful(stop, "gone.png", "data.bad_images=stop", "data.root")
    many = refused(tmp_path / "t.csv", f"image,label\n{rows}none.png,0\nno.png,0\n")
    assert_helpful(many, "4 files", "data.bad_images_cap=0.01 allows 3", "data.root", "data verify")
    assert len(written(tmp_path / "t.csv", f"image,label\n{rows}none.png,0\nno.png,0\n", bad_images_cap=0.02)) == 298


def test_missing_files_in_quarantine_do_not_count(tmp_path: Path) -> None:
    write_files(tmp_path, ["a.png", "b.png"])
    text = "image,label\na.png,0\na.png,0\nb.png,1\nb.png,1\n" + "".join(f"gone{i}.png,1\n" for i in range(5))
    assert_helpful(refused(tmp_path / "t.csv", text), "5 files", "data.quarantine")
    (tmp_path / "bad.txt").write_text("".join(f"{tmp_path}/gone{i}.png\tno such file\n" for i in range(5)))
    config = DataConfig(source=str(tmp_path / "t.csv"), quarantine=tmp_path / "bad.txt", val_share=0.5)
    splits = open_data(config, threads=0)
    assert (len(splits.train), len(splits.val)) == (2, 2)
    assert f"5 samples are left out, named in {tmp_path / 'bad.txt'}" in splits.notes
    with pytest.raises(UserError) as caught:
        opened(tmp_path / "t.csv", quarantine=tmp_path / "none.txt")
    assert_helpful(caught.value, "none.txt")


def test_missing_ids_are_named_as_their_files_would_be(tmp_path: Path) -> None:
    write_files(tmp_path / "train", ["a.jpg", "b.jpg"])
    source = written(tmp_path / "train.csv", "id,label\na,0\nb,1\nc,1\n")
    assert source.left_out == ((str(tmp_path / "train" / "c.jpg"), "no such file"),)


def test_a_list_of_packed_images(tmp_path: Path) -> None:
    (tmp_path / "train.rec").write_bytes(b"")
    assert_helpful(
        refused(tmp_path / "train.lst", "0\t1\ta.jpg\n1\t0\tb.jpg\n"), "2 files", str(tmp_path / "train.rec")
    )


def test_a_root_that_is_not_there(tmp_path: Path) -> None:
    write_files(tmp_path, ["a.png"])
    error = refused(tmp_path / "t.csv", "image,label\na.png,0\n", root=tmp_path / "elsewhere")
    assert_helpful(error, str(tmp_path / "elsewhere"), "data.root")


def test_a_root_that_is_only_likely(tmp_path: Path) -> None:
    write_files(tmp_path, ["left/1.jpg", "left/2.jpg", "right/1.jpg", "right/2.jpg", "meta/note.txt"])
    (tmp_path / "t.txt").write_text("1.jpg 0\n2.jpg 1\n")
    for root, found in ((tmp_path / "right", "right"), (tmp_path / "left", "left")):
        source = open_list(tmp_path / "t.txt", None, channels=None, pool=None, root=root)
        assert_same_pixels(source, [tmp_path / found / "1.jpg", tmp_path / found / "2.jpg"])
    (tmp_path / "t.txt").write_text("left/1.jpg 0\nright/2.jpg 1\n")
    source = open_list(tmp_path / "t.txt", None, channels=None, pool=None, root=tmp_path / "meta")
    assert_same_pixels(source, [tmp_path / "left/1.jpg", tmp_path / "right/2.jpg"])
