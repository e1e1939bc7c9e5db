import io
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console

from phalanx.commands.loading import load_trained
from phalanx.commands.predict import find_images, predict_images
from phalanx.data.augment.framing import Whole
from phalanx.data.sources.embedded import open_digits
from phalanx.errors import UserError
from tests.commands.digit_files import write_digits


def predicted(run: Path, *images: str, style: str = "tsv", top_k: int = 3, terminal: bool = False) -> tuple[int, str]:
    """Exit code, and what was printed."""
    said = io.StringIO()
    console = Console(file=said, force_terminal=terminal, width=100)
    return predict_images(console, run, images, top_k, style, "cpu"), said.getvalue()


def test_files_are_answered_as_the_validation_data_is(digits_run: Path, tmp_path: Path) -> None:
    code, said = predicted(digits_run, str(write_digits(tmp_path, 30)), style="json", top_k=99)
    assert code == 0
    source = open_digits("val", channels=1)
    read = source.read(np.arange(30), Whole(16), 0, replace_bad=False)
    logits = load_trained(digits_run, {}).logits(torch.from_numpy(read.images).permute(0, 3, 1, 2))
    for line in said.splitlines():
        answer = json.loads(line)
        expected = logits[int(Path(answer["image"]).stem)].softmax(dim=0)
        found = {one["class"]: one["probability"] for one in answer["predictions"]}
        assert [found[str(digit)] for digit in range(10)] == pytest.approx(expected.tolist(), abs=1e-6)
        assert list(found.values()) == sorted(found.values(), reverse=True)


@pytest.mark.parametrize("style", ["json", "tsv", "table"])
def test_an_image_that_does_not_decode_is_told_in_its_place_and_the_others_go_on(
    digits_run: Path, tmp_path: Path, style: str
) -> None:
    write_digits(tmp_path, 2)
    (tmp_path / "0").mkdir(exist_ok=True)
    (tmp_path / "0" / "aaa.jpg").write_bytes(b"no picture")
    code, said = predicted(digits_run, str(tmp_path), style=style, top_k=1)
    assert code == 2
    lines = said.splitlines()
    if style == "json":
        answers = [json.loads(line) for line in lines]
        bad = next(answer for answer in answers if answer["image"].endswith("aaa.jpg"))
        assert set(bad) == {"image", "error"}
        assert sum("predictions" in answer for answer in answers) == 2
        return
    assert lines[0].split("\t") == ["image", "rank", "class", "probability"]
    rows = [line.split("\t") for line in lines[1:]]
    assert [row[1] for row in rows if row[0].endswith("aaa.jpg")] == ["error"]
    assert [row[1] for row in rows if row[0].endswith(".png")] == ["1", "1"]


def test_nothing_but_bad_images_is_told_too(digits_run: Path, tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"{number}.jpg").write_bytes(b"")
    code, said = predicted(digits_run, f"{tmp_path}/*.jpg")
    assert (code, said.count("0 bytes")) == (2, 3)


def test_a_person_sees_a_table(digits_run: Path, tmp_path: Path) -> None:
    code, said = predicted(digits_run, str(write_digits(tmp_path, 1)), style="table", terminal=True)
    assert code == 0
    assert "probability" in said
    assert said.count(" %") == 3
    assert said.count("000.png") == 1


def test_files_folders_and_globs_are_found_once_and_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("b.png", "a.jpg", "deep/er/c.webp", "notes.txt", "[1].png"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    assert find_images(["b.png", "."]) == [b"b.png", b"[1].png", b"a.jpg", b"deep/er/c.webp"]
    assert find_images(["*.png"]) == [b"[1].png", b"b.png"]
    assert find_images(["[1].png"]) == [b"[1].png"]
    assert find_images(["**/*.webp"]) == [b"deep/er/c.webp"]
    assert find_images(["notes.txt"]) == [b"notes.txt"]


@pytest.mark.parametrize("word", ["nowhere.png", "*.png", "empty"])
def test_nothing_found_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, word: str) -> None:
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match="no image at"):
        find_images([word])
