"""ImageNet's official archives, in miniature: three classes, built as the real ones are."""

import io
import tarfile
from pathlib import Path

import numpy as np
import pytest
from scipy.io import savemat

from phalanx.config.schema import DataConfig
from phalanx.data.pack.imagenet import open_imagenet, read_devkit
from phalanx.data.pack.job import Order, pack
from phalanx.data.sources.manifest import Options
from phalanx.errors import UserError
from tests.data.pack.packs import FORMS, pack_folder, shard_sums
from tests.data.samples import assert_helpful, image_bytes, smooth

# As in the real one, class numbers follow neither the order of the ids nor that of the entries, and inner nodes of
# the hierarchy come after the classes.
SYNSETS = [(1, "n02119789", 0), (2, "n02100735", 0), (3, "n01440764", 0), (4, "n02084071", 2)]
TRAIN = {"n02119789": ["n02119789_9.JPEG", "n02119789_10.JPEG"], "n01440764": ["n01440764_18.JPEG"]}
TRAIN |= {"n02100735": [f"n02100735_{number}.JPEG" for number in (533, 20, 7)]}
TRUTH = [3, 1, 1, 2, 3]


def picture(name: str) -> bytes:
    """Each file its own picture, a few with the oddities of the real ones: a PNG named JPEG, CMYK."""
    number = sum(name.encode())
    form, mode = {0: ("PNG", None), 1: ("JPEG", "CMYK")}.get(number % 5, ("JPEG", None))
    return image_bytes(smooth(20 + number % 7, 24) ^ np.uint8(number % 64), form, mode)


def add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    tar.addfile(info, io.BytesIO(data))


def inner_tar(names: list[str]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name in names:
            add(tar, name, picture(name))
    return out.getvalue()


def meta_mat() -> bytes:
    kinds = [("ILSVRC2012_ID", "O"), ("WNID", "O"), ("words", "O"), ("gloss", "O"), ("num_children", "O")]
    kinds += [("children", "O"), ("wordnet_height", "O"), ("num_train_images", "O")]
    synsets = np.empty((len(SYNSETS), 1), dtype=kinds)
    for row, (number, wnid, children) in enumerate(SYNSETS):
        below = np.arange(1, children + 1, dtype=np.uint8)
        synsets[row, 0] = (number, wnid, f"words of {wnid}", "a gloss", children, below, 1, len(TRAIN.get(wnid, [])))
    out = io.BytesIO()
    savemat(out, {"synsets": synsets})
    return out.getvalue()


def write_devkit(path: Path, truth: list[int], meta: bytes | None = None) -> Path:
    folder = "ILSVRC2012_devkit_t12"
    with tarfile.open(path, "w:gz") as tar:
        add(tar, f"{folder}/readme.txt", b"about")
        add(tar, f"{folder}/data/meta.mat", meta_mat() if meta is None else meta)
        lines = "".join(f"{number}\n" for number in truth)
        add(tar, f"{folder}/data/ILSVRC2012_validation_ground_truth.txt", lines.encode())
    return path


def write_archives(tmp_path: Path) -> tuple[Path, Path, Path]:
    train, val = tmp_path / "ILSVRC2012_img_train.tar", tmp_path / "ILSVRC2012_img_val.tar"
    with tarfile.open(train, "w") as tar:
        for wnid, names in TRAIN.items():
            add(tar, f"{wnid}.tar", inner_tar(names))
    with tarfile.open(val, "w") as tar:
        for number in (4, 1, 5, 2, 3):  # in no order
            name = f"ILSVRC2012_val_{number:08d}.JPEG"
            add(tar, name, picture(name))
    return train, val, write_devkit(tmp_path / "devkit.tar.gz", TRUTH)


@pytest.fixture
def archives(tmp_path: Path) -> tuple[Path, Path, Path]:
    return write_archives(tmp_path)


def as_folders(root: Path) -> Path:
    """What people make of the archives by hand; validation as a flat folder with its list."""
    for wnid, names in TRAIN.items():
        (root / "train" / wnid).mkdir(parents=True)
        for name in names:
            (root / "train" / wnid / name).write_bytes(picture(name))
    (root / "val").mkdir()
    for number in range(1, 6):
        name = f"ILSVRC2012_val_{number:08d}.JPEG"
        (root / "val" / name).write_bytes(picture(name))
    (root / "labels.txt").write_text("".join(f"{SYNSETS[number - 1][1]}\n" for number in TRUTH))
    return root


@pytest.mark.parametrize("form", [form for form in FORMS if form != "rec"])
def test_shards_are_those_of_class_folders(archives: tuple[Path, Path, Path], form: str, tmp_path: Path) -> None:
    heard: list[int] = []
    splits = open_imagenet(*archives, heard.append)
    assert sum(heard) == archives[0].stat().st_size + archives[1].stat().st_size
    assert splits["train"].classes == sorted(TRAIN)
    assert splits["train"].labels.tolist() == [0, 1, 1, 1, 2, 2]
    assert splits["val"].labels.tolist() == [0, 2, 2, 1, 0]
    assert splits["val"].name(3) == f"{archives[1]}: ILSVRC2012_val_00000004.JPEG"
    order = Order("ImageNet", splits, Options.model_validate({"form": form, "shards": 2}), DataConfig(), "", archives)
    pack(order, tmp_path / "p", threads=2, advance=lambda count: None)
    folders = as_folders(tmp_path / "folders")
    pack_folder(folders, tmp_path / "f", form, shards=2, settings={"val_labels": folders / "labels.txt"})
    assert shard_sums(tmp_path / "p") == shard_sums(tmp_path / "f")


def refused(train: Path, val: Path, devkit: Path) -> UserError:
    with pytest.raises(UserError) as caught:
        open_imagenet(train, val, devkit, lambda count: None)
    return caught.value


def test_archives_that_are_others(archives: tuple[Path, Path, Path], tmp_path: Path) -> None:
    train, val, devkit = archives
    assert_helpful(refused(val, val, devkit), "does not hold the classes", "3 of 3 are missing")
    assert_helpful(refused(train, train, devkit), "validation images", "0 images", "5 labels")
    assert_helpful(refused(train, val, val), "not the development kit", "meta.mat")
    more = write_devkit(tmp_path / "more.tar.gz", [*TRUTH, 1])
    assert_helpful(refused(train, val, more), "5 images", "6 labels")
    (tmp_path / "x.tar.gz").write_bytes(devkit.read_bytes()[:-300])
    assert_helpful(refused(train, val, tmp_path / "x.tar.gz"), "does not unpack")


def test_archives_that_are_damaged(archives: tuple[Path, Path, Path], tmp_path: Path) -> None:
    train, val, devkit = archives
    cut = tmp_path / "cut.tar"
    cut.write_bytes(train.read_bytes()[:5000])
    assert_helpful(refused(cut, val, devkit), "cut.tar is damaged at offset")
    broken = bytearray(train.read_bytes())
    broken[600] ^= 1  # in the header of the first image of the first class
    cut.write_bytes(broken)
    assert_helpful(refused(cut, val, devkit), "damaged at offset 512", "checksum")


@pytest.mark.parametrize(("truth", "meta"), [([1, 9], None), ([], None), ([1], b"no matlab"), ([1], b"")])
def test_development_kits_that_are_damaged(tmp_path: Path, truth: list[int], meta: bytes | None) -> None:
    with pytest.raises(UserError) as caught:
        read_devkit(write_devkit(tmp_path / "kit.tar.gz", truth, meta))
    assert_helpful(caught.value, "meta.mat" if truth else "empty", "again")
