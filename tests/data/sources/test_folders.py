"""Class folders: what is found, what is left out, what is refused."""

import os
from pathlib import Path

import numpy as np
import pytest

from phalanx.data.augment.framing import CentreCrop
from phalanx.data.sources.encoded import decode_pool
from phalanx.data.sources.folders import FileSource, Names, open_class_folders
from phalanx.errors import UserError
from tests.data.samples import REAL, FixedViews, assert_helpful, image_bytes, needs_real_data, smooth, write_images


def opened(folder: Path, channels: int | None = None) -> FileSource:
    return open_class_folders(folder, channels=channels, pool=None)


def test_names_in_one_buffer() -> None:
    names = Names([b"a", b"", b"folder/longer name"])
    assert [names[i] for i in range(len(names))] == [b"a", b"", b"folder/longer name"]


def test_classes_are_the_sorted_folder_names(tmp_path: Path) -> None:
    source = opened(write_images(tmp_path, {"zebra": 2, "ape": 3, "cat 2": 1}))
    assert source.classes == ["ape", "cat 2", "zebra"]
    np.testing.assert_array_equal(source.labels, [0, 0, 0, 1, 2, 2])
    assert source.name(3) == str(tmp_path / "cat 2" / "0.png")
    result = source.read(np.array([5, 0]), FixedViews(4), 0, replace_bad=True)
    np.testing.assert_array_equal(result.images[:, 0, 0, 0], [1, 10])
    assert (source.image_size, source.mean[0], source.channels) == (224, 0.485, 3)
    assert source.description == f"class folders in {tmp_path}, 6 images in 3 classes"
    assert source.notes == ()


def test_grey_on_request(tmp_path: Path) -> None:
    source = opened(write_images(tmp_path, {"a": 1, "b": 1}), channels=1)
    assert source.read(np.array([0]), FixedViews(4), 0, replace_bad=True).images.shape == (1, 4, 4, 1)
    assert (source.mean, source.std) == ((0.449,), (0.226,))
    with pytest.raises(UserError) as caught:
        opened(tmp_path, channels=5)
    assert_helpful(caught.value, "5 channels")


def test_nested_files_endings_and_what_is_not_an_image(tmp_path: Path) -> None:
    write_images(tmp_path, {"a": 1, "b": 1})
    deep = tmp_path / "a" / "2024" / "may"
    deep.mkdir(parents=True)
    (deep / "x.JPEG").write_bytes(image_bytes(smooth(8, 8), "JPEG"))
    (deep / "readme.md").write_text("no image")
    (tmp_path / "a" / ".hidden.png").write_bytes(b"")
    (tmp_path / ".cache").mkdir()
    (tmp_path / "stray.png").write_bytes(b"")
    source = opened(tmp_path)
    assert [os.fsdecode(source.names[i]) for i in range(len(source))] == ["a/0.png", "a/2024/may/x.JPEG", "b/0.png"]
    hidden, stray, others = source.notes
    assert hidden == f"hidden and system folders in {tmp_path} are left out: .cache"
    assert "1 images directly in" in stray
    assert "1 files" in others


def test_names_that_are_not_utf8(tmp_path: Path) -> None:
    write_images(tmp_path, {"a": 1, "b": 1})
    odd = os.fsencode(tmp_path) + b"/b/\xff\xfe.png"
    (tmp_path / "b" / "0.png").rename(os.fsdecode(odd))
    assert opened(tmp_path).read(np.array([1]), FixedViews(4), 0, replace_bad=False).bad == []


def test_linked_folders_and_files_are_followed(tmp_path: Path) -> None:
    write_images(tmp_path / "store", {"a": 2, "b": 1})
    data = tmp_path / "data"
    (data / "b").mkdir(parents=True)
    (data / "a").symlink_to(tmp_path / "store" / "a")
    (data / "b" / "linked.png").symlink_to(tmp_path / "store" / "b" / "0.png")
    assert opened(data).read(np.arange(3), FixedViews(4), 0, replace_bad=False).bad == []


def test_a_circle_of_links_is_an_error_and_no_endless_loop(tmp_path: Path) -> None:
    write_images(tmp_path, {"a": 1, "b": 1})
    (tmp_path / "a" / "again").symlink_to(tmp_path / "a")
    with pytest.raises(UserError) as caught:
        opened(tmp_path)
    assert_helpful(caught.value, "cannot be listed")


def test_empty_class_folders_are_told_and_left_out(tmp_path: Path) -> None:
    write_images(tmp_path, {"a": 1, "empty": 0, "void": 0, "z": 2})
    (tmp_path / "void" / "notes.txt").write_text("nothing")
    source = opened(tmp_path)
    assert (source.classes, source.labels.tolist()) == (["a", "z"], [0, 1, 1])
    assert source.notes[0] == f"2 folders in {tmp_path} are without images and are no classes: empty, void"
    assert "1 files" in source.notes[1]


def test_nothing_but_empty_class_folders(tmp_path: Path) -> None:
    write_images(tmp_path, {"empty": 0, "void": 0})
    with pytest.raises(UserError) as caught:
        opened(tmp_path)
    assert_helpful(caught.value, "no class folders with images", "empty, void")


def test_no_class_folders(tmp_path: Path) -> None:
    (tmp_path / "x.png").write_bytes(b"")
    with pytest.raises(UserError) as caught:
        opened(tmp_path)
    assert_helpful(caught.value, str(tmp_path), "no class folders", "1 images")


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        opened(tmp_path / "missing")
    assert_helpful(caught.value, "missing", "No such file")


def test_a_file_that_goes_away_is_a_bad_sample(tmp_path: Path) -> None:
    source = opened(write_images(tmp_path, {"a": 2, "b": 1}))
    (tmp_path / "a" / "0.png").unlink()
    result = source.read(np.array([0]), FixedViews(4), 0, replace_bad=True)
    assert result.indices.tolist() == [1]
    assert "No such file" in result.bad[0][1]


@needs_real_data
def test_real_photographs() -> None:
    source = open_class_folders(REAL / "pets", channels=None, pool=decode_pool(2))
    assert (len(source), len(source.classes), source.classes[0]) == (204, 10, "Abyssinian")
    result = source.read(np.arange(0, 204, 4), FixedViews(64), 0, replace_bad=False)
    assert (len(result.images), result.bad) == (51, [])
    assert 60 < result.images.mean() < 180


@needs_real_data
def test_real_imagenet_folders() -> None:
    source = open_class_folders(REAL / "imagenette224" / "val", channels=None, pool=decode_pool(2))
    assert (len(source), source.classes[0]) == (500, "n01440764")
    np.testing.assert_array_equal(np.bincount(source.labels), [50] * 10)
    result = source.read(np.arange(0, 500, 10), FixedViews(224), 0, replace_bad=False)
    assert (result.images.shape, result.bad) == ((50, 224, 224, 3), [])


def test_a_pipe_with_an_images_name_is_a_bad_image_and_nobody_waits_for_it(tmp_path: Path) -> None:
    write_images(tmp_path / "d", {"ape": 2, "cat": 2})
    os.mkfifo(tmp_path / "d" / "ape" / "x.png")
    source = open_class_folders(tmp_path / "d", channels=None, pool=None)
    read = source.read(np.arange(5), CentreCrop(8), 0, replace_bad=False)
    assert read.bad == [(2, "it is not a regular file")]
