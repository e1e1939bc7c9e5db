import io
import json
from pathlib import Path

import pytest
from PIL import Image
from rich.console import Console

from phalanx.commands.data_info import show_info
from phalanx.errors import UserError
from tests.data.pack.packs import pack_folder, write_dataset
from tests.data.samples import assert_helpful, write_images
from tests.data.sources.test_cifar import write_cifar10


def said(source: Path | str, out: Path | None, *settings: str, as_json: bool = False, terminal: bool = False) -> str:
    text = io.StringIO()
    show_info(Console(file=text, force_terminal=terminal, width=120), str(source), list(settings), out, as_json=as_json)
    return text.getvalue()


def test_what_is_said_of_folders(tmp_path: Path) -> None:
    write_dataset(tmp_path / "pets")
    (tmp_path / "pets" / "val" / "dog" / "0.jpg").write_bytes(b"broken")
    lines = said(tmp_path / "pets", tmp_path / "sheets" / "pets.png").splitlines()
    assert lines[:4] == ["class\ttrain\tval", "ape\t4\t2", "cat 2\t4\t2", "dog\t4\t1"]
    rows = dict(line.split(": ", 1) for line in lines[4:])
    assert rows["format"] == "folder"
    assert rows["classes"] == "3, each with 4 to 4 in train, 1 to 2 in val"
    assert rows["train"].startswith("12 samples, ")
    assert "height×width: smallest 40×38, median 56×49, largest 73×60" in rows["train images"]
    assert "1 unreadable" in rows["val images"]
    with Image.open(tmp_path / "sheets" / "pets.png") as sheet:
        assert sheet.size == (968, 3 * 138 + 8)
        assert len(sheet.getcolors(maxcolors=2**24) or []) > 1000, "pictures, not an empty page"


def test_many_classes_are_shortened_and_json_has_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"class {i:03d} with a name too long for its picture" for i in range(25)]
    write_images(tmp_path / "many", {name: 1 + i % 3 for i, name in enumerate(names)})
    monkeypatch.chdir(tmp_path)
    text = said("many", None)
    assert "… 1 more (--json lists all)" in text
    assert len(text.splitlines()) < 40
    about = json.loads(said("many", None, as_json=True))
    assert (len(about["classes"]), about["contact_sheet"]) == (25, "many-contact.png")
    assert about["classes"][4] == {"name": names[4], "train": 2}
    split = about["splits"]["train"]
    assert (split["samples"], split["median"], split["kinds"]) == (49, [6, 8], {"PNG": 49})
    assert split["bytes"] == sum(file.stat().st_size for file in (tmp_path / "many").rglob("*.png"))
    with Image.open("many-contact.png") as sheet:
        assert sheet.size == (968, 4 * 138 + 8)


@pytest.mark.parametrize("form", ["wds", "rec", "raw"])
def test_what_was_packed(form: str, tmp_path: Path) -> None:
    pack_folder(write_dataset(tmp_path / "d"), tmp_path / "p", form)
    about = json.loads(said(tmp_path / "p", tmp_path / "p.png", as_json=True))
    assert about["format"] == form
    assert [one["name"] for one in about["classes"]] == ["ape", "cat 2", "dog"]
    assert about["splits"]["train"]["largest"] == [73, 60]
    assert (about["splits"]["train"]["looked_at"], about["splits"]["val"]["samples"]) == (12, 5)


def test_images_in_memory(tmp_path: Path) -> None:
    text = said(write_cifar10(tmp_path), tmp_path / "cifar.png", "data.channels=1", terminal=True)
    assert "10 samples, 10.2 kB" in text
    assert "smallest 32×32" in text
    assert (tmp_path / "cifar.png").is_file()


def test_what_cannot_be(tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        said("nowhere", None)
    assert_helpful(caught.value, "nowhere")
    with pytest.raises(UserError) as caught:
        said(tmp_path, tmp_path / "x.png", "optim.lr=1")
    assert_helpful(caught.value, "optim.lr has no effect here")
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UserError) as caught:
        said(write_cifar10(tmp_path / "c"), tmp_path / "file" / "x.png")
    assert_helpful(caught.value, "--out")
