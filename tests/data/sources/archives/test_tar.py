"""Tar archives of class folders, plain and gzipped: the same as their folders; WebDataset stays what it is."""

import tarfile
from pathlib import Path

import numpy as np
import pytest

from phalanx.data.sources.formats import recognise
from phalanx.errors import UserError
from tests.data.samples import FixedViews, assert_helpful
from tests.data.shard_files import pictures as samples
from tests.data.shard_files import write_tar, write_wds
from tests.data.sources.archives.test_zip import assert_same, opened, pictures, write_folder


@pytest.fixture(autouse=True)
def own_cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.mark.parametrize("mode", ["w", "w:gz"])
@pytest.mark.parametrize("form", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
@pytest.mark.parametrize("folders", [("ape", "Äffchen"), ("train/ape", "train/cat", "val/ape", "val/cat")])
@pytest.mark.parametrize("top", ["flower_photos/", "./"])
def test_the_same_as_its_folders(tmp_path: Path, mode: str, form: int, folders: tuple[str, ...], top: str) -> None:
    members = pictures(*(top + folder for folder in folders))
    extra = {f"{top}LICENSE.txt": b"words", f"{top}{folders[0]}/._0.png": b"\0\5\26\7"}
    name = "flowers.tgz" if mode == "w:gz" else "flowers.tar"
    path = write_tar(tmp_path / name, sorted({**members, **extra}.items(), reverse=True), form=form, mode=mode)
    assert recognise(str(path))[0] == "tar"
    for _ in range(2):  # the second time by its index
        found = opened(path)
        assert_same(found, opened(write_folder(tmp_path / "folder", members) / top))
    assert found.train.name(0).startswith(f"{path}/{top.removeprefix('./')}{folders[0]}/")


def test_webdataset_is_still_recognised(tmp_path: Path) -> None:
    assert recognise(str(write_wds(tmp_path / "a.tar", samples(4))))[0] == "wds"
    members = [(f"part/{i}{end}", data) for i in range(3) for end, data in ((".jpg", b"x"), (".cls", b"1"))]
    assert recognise(str(write_tar(tmp_path / "b.tar", members)))[0] == "wds"


def test_damage_is_located_and_salvaged(tmp_path: Path) -> None:
    members = pictures("ape", "cat")
    path = write_tar(tmp_path / "data.tar", members.items())
    with tarfile.open(path) as tar:
        header = tar.getmember("cat/2.png").offset
    data = bytearray(path.read_bytes())
    data[header + 5] ^= 0xFF
    path.write_bytes(data)
    with pytest.raises(UserError) as error:
        opened(path)
    assert_helpful(error.value, "data.tar", f"offset {header:,}", "data.salvage=true")
    salvaged = opened(path, salvage=True)
    assert len(salvaged.train) + len(salvaged.val) == 6
    assert not salvaged.train.read(np.arange(2), FixedViews(8), 0, replace_bad=False).bad
