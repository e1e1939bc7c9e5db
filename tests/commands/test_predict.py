import io
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console

from phalanx.commands.loading import load_trained
from phalanx.commands.predict import predict_images
from phalanx.commands.predict_inputs import find_inputs
from phalanx.data.augment.framing import Whole
from phalanx.data.sources.embedded import open_digits
from phalanx.errors import UserError
from tests.commands.digit_files import write_digits, write_own_dataset
from tests.data.pack.packs import pack_folder
from tests.data.shard_files import pictures, write_wds


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
    assert find_inputs(["b.png", "."]) == [[b"b.png", b"[1].png", b"a.jpg", b"deep/er/c.webp"]]
    assert find_inputs(["*.png"]) == [[b"[1].png", b"b.png"]]
    assert find_inputs(["[1].png"]) == [[b"[1].png"]]
    assert find_inputs(["**/*.webp"]) == [[b"deep/er/c.webp"]]
    (tmp_path / "photo").touch()
    assert find_inputs(["photo", "a.jpg"]) == [[b"photo", b"a.jpg"]]


def test_data_is_found_as_training_finds_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    samples = pictures(4)
    for name in ("a.tar", "b.tar"):
        write_wds(tmp_path / name, samples)
    (tmp_path / "shards").mkdir()
    write_wds(tmp_path / "shards" / "train-0.tar", samples)
    (tmp_path / "a.jpg").touch()
    (tmp_path / "list.txt").write_text("a.jpg 0\n")
    (tmp_path / "mine.py").write_text("class Faces: ...")
    for word in ("a.tar", "*.tar", "shards", "wds:a.tar", "digits", "synthetic", "mine.py:Faces"):
        assert find_inputs([word]) == [word]
    assert find_inputs(["list.txt", "a.jpg", "a.*", "digits"]) == ["list.txt", [b"a.jpg"], "a.tar", "digits"]
    with pytest.raises(UserError, match=r"no data at 'gone\.tar'"):
        find_inputs(["wds:gone.tar"])


@pytest.mark.parametrize("word", ["nowhere.png", "*.png", "empty"])
def test_nothing_found_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, word: str) -> None:
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match="no image at"):
        find_inputs([word])


FORMS = ["wds", "rec", "raw", "tfrecord", "folder"]


def test_every_format_is_answered_as_the_files_are(digits_run: Path, tmp_path: Path) -> None:
    files = write_digits(tmp_path / "files", 20)
    for form in FORMS:
        pack_folder(files, tmp_path / form, form, shards=2, settings={"channels": 1})
    (tmp_path / "list.txt").write_text("".join(f"{path} {path.parent.name}\n" for path in sorted(files.glob("*/*"))))
    mine = write_own_dataset(tmp_path, files)
    code, said = predicted(digits_run, str(files), style="json")
    assert code == 0
    wanted = [json.loads(line) for line in said.splitlines()]
    labels = [Path(answer["image"]).parent.name for answer in wanted]
    words = [str(tmp_path / name) for name in [*FORMS, "list.txt", "wds/*.tar", "wds/train-{00000..00001}.tar"]]
    words += [mine, f"rec:{tmp_path}/rec/*.rec"]
    code, said = predicted(digits_run, *words, style="json")
    assert code == 0
    found = [json.loads(line) for line in said.splitlines()]
    assert len(found) == 20 * len(words)
    for place, answer in enumerate(found):
        assert answer["predictions"] == wanted[place % 20]["predictions"]
        # A folder with images is all of its images, whatever folders they are in.
        assert answer.get("true_label") == (None if "/folder/" in answer["image"] else labels[place % 20])
    assert found[0]["image"] == f"{tmp_path}/wds/train-00000.tar: 00000000.png"


def test_labels_and_splits_of_data(digits_run: Path) -> None:
    code, said = predicted(digits_run, "digits", "data.channels=1", top_k=2)
    assert code == 0
    assert len(said.splitlines()) == 1 + 2 * 1797
    out = io.StringIO()
    predict_images(Console(file=out), digits_run, ["digits"], 1, "tsv", "cpu", split="val", labels=True)
    head, *rows = [line.split("\t") for line in out.getvalue().splitlines()]
    assert head == ["image", "rank", "class", "probability", "true_label"]
    assert [row[4] for row in rows] == [str(label) for label in open_digits("val", channels=1).labels]
    assert np.mean([row[2] == row[4] for row in rows]) > 0.5


def test_labels_that_the_model_does_not_know_are_no_matter(digits_run: Path, tmp_path: Path) -> None:
    path = tmp_path / "list.txt"
    (image,) = write_digits(tmp_path / "d", 1).glob("*/*")
    path.write_text(f"{image} fish\n{image} bird\n")
    code, said = predicted(digits_run, str(path), style="json", top_k=1)
    assert code == 0
    assert [json.loads(line)["true_label"] for line in said.splitlines()] == ["fish", "bird"]
    with pytest.raises(UserError, match=r"has no val split"):
        predict_images(Console(quiet=True), digits_run, [str(path)], 1, "tsv", "cpu", split="val")
