import io
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image
from rich.console import Console

from phalanx.commands.data_counts import bar, describe_classes
from phalanx.commands.data_info import show_info
from phalanx.errors import UserError
from tests.data.pack.packs import pack_folder, write_dataset
from tests.data.samples import assert_helpful, photograph, write_images
from tests.data.sources.test_cifar import write_cifar10


def said(
    source: Path | str,
    out: Path | None,
    *settings: str,
    duplicates: Path | None = None,
    as_json: bool = False,
    terminal: bool = False,
) -> str:
    text = io.StringIO()
    console = Console(file=text, force_terminal=terminal, width=120)
    show_info(console, str(source), list(settings), out, duplicates=duplicates, as_json=as_json)
    return text.getvalue()


def rows_of(text: str) -> dict[str, str]:
    return dict(line.split(": ", 1) for line in text.splitlines() if ": " in line)


def test_the_first_lines_say_what_is_trained_on_what(tmp_path: Path) -> None:
    write_dataset(tmp_path / "pets")
    (tmp_path / "pets" / "val" / "dog" / "0.jpg").write_bytes(b"broken")
    lines = said(tmp_path / "pets", tmp_path / "sheets" / "pets.png").splitlines()
    assert lines[:3] == [
        f"trained on: class folders in {tmp_path}/pets/train, 12 images in 3 classes",
        f"judged on: class folders in {tmp_path}/pets/val, 5 images in 3 classes",
        "classes: 3 (4 in train and 1 to 2 in val each): ape, cat 2, dog",
    ]
    counts = [line.split("\t") for line in lines if "\t" in line]
    assert [row[:3] for row in counts] == [
        ["class", "train", "val"],
        ["ape", "4", "2"],
        ["cat 2", "4", "2"],
        ["dog", "4", "1"],
    ]
    assert len({row[3] for row in counts[1:]}) == 1, "equal counts have equal bars"
    rows = rows_of("\n".join(lines))
    assert rows["format"] == "folder"
    assert rows["train images"].startswith("12 of ")
    assert "height×width: smallest 40×38, median 56×49, largest 73×60" in rows["train images"]
    assert "1 unreadable" in rows["val images"]
    with Image.open(tmp_path / "sheets" / "pets.png") as sheet:
        assert sheet.size == (968, 3 * 138 + 8)
        assert len(sheet.getcolors(maxcolors=2**24) or []) > 1000, "pictures, not an empty page"


def test_the_hold_out_is_what_a_run_would_be_judged_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_images(tmp_path / "pets", {"ape": 10, "cat": 20})
    monkeypatch.chdir(tmp_path)
    lines = said("pets", None).splitlines()
    assert lines[0].startswith("trained on: 27 samples of: class folders in pets")
    assert lines[1].startswith("judged on: 3 samples of: class folders in pets")
    assert lines[2] == "classes: 2 (9 to 18 in train and 1 to 2 in val each): ape, cat"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["pets"], "no picture that nobody asked for"


def test_many_classes_are_shortened_and_json_has_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"class {i:03d} with a name too long for its picture" for i in range(25)]
    write_images(tmp_path / "many", {name: 3 + i % 3 for i, name in enumerate(names)})
    monkeypatch.chdir(tmp_path)
    text = said("many", None)
    assert "… 1 more in between (--json lists all)" in text
    assert len(text.splitlines()) < 45
    about = json.loads(said("many", Path("sheet.png"), as_json=True))
    assert (len(about["classes"]), about["contact_sheet"]) == (25, "sheet.png")
    assert about["classes"][4] == {"name": names[4], "train": 3, "val": 1}
    split = about["splits"]["train"]
    assert (split["samples"], split["median"], split["kinds"]) == (74, [6, 8], {"PNG": 74})
    stored = sum(about["splits"][part]["bytes"] for part in ("train", "val"))
    assert stored == sum(file.stat().st_size for file in (tmp_path / "many").rglob("*.png"))
    with Image.open("sheet.png") as sheet:
        assert sheet.size == (968, 4 * 138 + 8)


def test_what_cannot_be_held_out_is_described_all_the_same(tmp_path: Path) -> None:
    write_images(tmp_path / "few", {"ape": 1, "cat": 1})
    text = said(tmp_path / "few", None)
    assert text.startswith("trained on: class folders in")
    assert "too small for a validation holdout" in text


def test_a_name_with_a_line_break_makes_no_line_of_its_own() -> None:
    counts = [{"name": "ape\nerror: x", "train": 2}, {"name": "cat", "train": 3}]
    assert describe_classes(counts, ["train"]) == "2 (2 to 3 in train each): ape error: x, cat"


def test_bars_follow_the_counts() -> None:
    assert [bar(count, 80) for count in (80, 40, 0)] == ["█" * 30, "█" * 15, ""]
    assert bar(1, 100_000) == "▏", "something is seen of every sample"


def test_copies_are_found_and_can_be_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = tmp_path / "pets"
    for number, name in enumerate(("train/ape/0", "train/ape/1", "train/dog/2", "val/ape/3", "val/dog/4")):
        (data / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(photograph(number)).save(data / f"{name}.png")
    shutil.copy(data / "train" / "ape" / "0.png", data / "val" / "dog" / "copy.png")
    shutil.copy(data / "train" / "ape" / "1.png", data / "train" / "dog" / "twice.png")
    Image.fromarray(photograph(2)).resize((48, 48)).save(data / "val" / "dog" / "small.jpg")
    monkeypatch.chdir(tmp_path)
    listed = tmp_path / "leaked.txt"
    rows = rows_of(said("pets", None, duplicates=listed))
    assert (
        "2 of 4 validation images are also training images (1 with the same bytes and 1 that look the same)"
        in (rows["duplicates"])
    )
    assert "pets/val/dog/copy.png = pets/train/ape/0.png" in rows["duplicates"]
    assert rows["to train without them"] == f"data.quarantine={listed}"
    assert rows["repeated in train"] == (
        "1 with the same bytes as another one, 1 of them under different classes: "
        "pets/train/ape/1.png = pets/train/dog/twice.png"
    )
    assert sorted(Path(line.split("\t")[0]).name for line in listed.read_text().splitlines()) == ["0.png", "2.png"]
    without = rows_of(said("pets", None, f"data.quarantine={listed}"))
    assert without["duplicates"] == "no validation image is also a training image"


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
    assert "10 of 10.2 kB" in text
    assert "all 32×32" in text
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


def test_pillows_warnings_about_single_images_stay_inside(tmp_path: Path) -> None:
    write_images(tmp_path / "d", {"ape": 4, "cat": 4})
    Image.new("1", (9_500, 9_500)).save(tmp_path / "d" / "ape" / "huge.png")  # Pillow warns of a decompression bomb
    command = [sys.executable, "-m", "phalanx", "data", "info", str(tmp_path / "d")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "9500×9500" in done.stdout
    assert done.stderr == ""
