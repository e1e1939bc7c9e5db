"""The layouts of archives are found as those of folders on disk."""

from pathlib import Path

import pytest

from phalanx.errors import UserError
from tests.data.samples import assert_helpful
from tests.data.shard_files import write_tar
from tests.data.sources.archives.test_zip import assert_same, opened, pictures, write_folder, write_zip

LAYOUTS = [
    ("Train/ape", "Train/cat", "Valid/ape", "Valid/cat"),
    ("training/ape", "training/cat", "testing/ape", "testing/cat"),
    ("seg_train/seg_train/ape", "seg_train/seg_train/cat", "seg_test/seg_test/ape", "seg_test/seg_test/cat"),
    ("repo/images/ape", "repo/images/cat", "repo/docs"),
    ("ape/train", "ape/test", "cat/train", "cat/test"),
]


@pytest.mark.parametrize("folders", LAYOUTS)
@pytest.mark.parametrize("name", ["data.zip", "data.tar"])
def test_layouts_in_archives(
    tmp_path: Path, folders: tuple[str, ...], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    members = pictures(*folders)
    path = (write_zip if name == "data.zip" else write_tar)(tmp_path / name, members.items())
    found, expected = opened(path), opened(write_folder(tmp_path / "folder", members))
    assert_same(found, expected)
    assert found.train.classes == ["ape", "cat"]
    where = str(tmp_path / "folder")
    assert [note.replace(str(path), where) for note in found.notes] == expected.notes


def test_what_is_refused(tmp_path: Path) -> None:
    one = write_zip(tmp_path / "one.zip", pictures("pets/ape").items())
    flat = write_zip(tmp_path / "flat.zip", [*pictures("images").items(), ("labels.csv", b"image,label\n0.png,ape\n")])
    for path, words in ((one, ("one.zip", "class")), (flat, ("flat.zip", "class"))):
        with pytest.raises(UserError) as error:
            opened(path)
        assert_helpful(error.value, *words)
