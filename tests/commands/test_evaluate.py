import io
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from rich.console import Console

from phalanx.commands.evaluate import evaluate_checkpoint, measure, print_confusions
from phalanx.commands.loading import load_trained
from phalanx.commands.other_data import other_data
from phalanx.config.resolve import parse_override
from phalanx.data.augment.framing import Whole
from phalanx.data.sources.open import open_split
from phalanx.errors import UserError
from phalanx.observe.confusion import Answers
from phalanx.runs import checkpoint
from tests.commands.digit_files import write_digits, write_own_dataset
from tests.data.pack.packs import pack_folder
from tests.data.shard_files import write_tfrecord


def evaluated(place: Path, out: Path | None, data: str | None = None, batch_size: int | None = None) -> str:
    """What was printed."""
    said = io.StringIO()
    evaluate_checkpoint(Console(file=said), place, data, batch_size, "cpu", None, out)
    return said.getvalue()


def report(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / "eval.json").read_text()))


def test_the_result_is_what_training_reported_with_tables_and_a_picture(digits_run: Path, tmp_path: Path) -> None:
    said = evaluated(digits_run, tmp_path)
    best = json.loads((digits_run / "summary.json").read_text())["best"]
    found = report(tmp_path)
    assert (found["top1"], found["topk"], found["step"]) == (best["top1"], best["topk"], best["step"])
    assert f"top-1: {100 * best['top1']:.2f} %" in said
    assert "training measured" not in said
    assert sum(one["correct"] for one in found["classes"]) == round(found["top1"] * found["samples"])
    assert sum(one["samples"] for one in found["classes"]) == found["samples"] == 355
    wrong = sum(one["times"] for one in found["confusions"])
    assert wrong == found["samples"] - round(found["top1"] * found["samples"])

    lines = (tmp_path / "per_class.tsv").read_text().splitlines()
    assert lines[0].split("\t") == ["class", "samples", "correct", "top-1", "most confused with"]
    assert [line.split("\t")[0] for line in lines[1:]] == [str(digit) for digit in range(10)]
    assert all(line in said for line in lines)
    with Image.open(tmp_path / "confusion.png") as picture:
        assert min(picture.size) > 500
    left = ["confusion.png", "eval.json", "mistakes", "mistakes.json", "per_class.tsv"]
    assert sorted(path.name for path in tmp_path.iterdir()) == left


def test_files_are_seen_as_the_training_data_was_and_bad_ones_are_told(digits_run: Path, tmp_path: Path) -> None:
    """The same digits as files: grey, the whole of each image, the same answers. And the run's folder is the place."""
    run = Path(shutil.copytree(digits_run, tmp_path / "run"))
    data = write_digits(tmp_path / "my digits")
    (data / "3" / "broken.png").write_bytes(b"no picture")
    said = evaluated(checkpoint.find(run), None, str(data))
    found, best = report(run / "eval-my-digits"), json.loads((digits_run / "summary.json").read_text())["best"]
    assert (found["top1"], found["samples"]) == (best["top1"], 355)
    assert found["bad_images"][0]["image"].endswith("broken.png")
    assert "left out, not readable" in said


def test_every_format_is_seen_the_same(digits_run: Path, tmp_path: Path) -> None:
    files = write_digits(tmp_path / "files", 60)
    (tmp_path / "list.txt").write_text("".join(f"{path} {path.parent.name}\n" for path in sorted(files.glob("*/*"))))
    trained = load_trained(digits_run, {"device": "cpu"})
    words = [str(files), f"folder:{files}", str(tmp_path / "list.txt"), write_own_dataset(tmp_path, files)]
    for form in ("wds", "rec", "raw", "tfrecord", "folder"):
        pack_folder(files, tmp_path / form, form, shards=2, settings={"channels": 1})
        words.append(str(tmp_path / form))
    words += [f"{tmp_path}/wds/*.tar", f"{tmp_path}/rec/train-{{00000..00001}}.rec", f"tfrecord:{tmp_path}/tfrecord"]
    seen = []
    for word in [*words, "synthetic"]:
        source = open_split(word, other_data(trained, word), trained.spec.classes, threads=0)
        assert source.classes == trained.spec.classes
        seen.append(source.read(np.arange(len(source)), Whole(16), 0, replace_bad=False))
    for read in seen[1:-1]:
        np.testing.assert_array_equal(read.images, seen[0].images)
        np.testing.assert_array_equal(read.labels, seen[0].labels)
    assert len(seen[-1].images) == 512
    own = measure(Console(quiet=True), digits_run, words[3], None, "cpu", None, tmp_path / "out")
    assert own.result.numbers.totals.samples == 60


def test_settings_tell_how_to_read_other_data(digits_run: Path, tmp_path: Path) -> None:
    samples = [(path.read_bytes(), int(path.parent.name)) for path in write_digits(tmp_path / "d", 30).glob("*/*")]
    path = write_tfrecord(tmp_path / "a.tfrecord", samples, image="picture", label="digit")
    with pytest.raises(UserError, match="picture"):
        evaluated(digits_run, tmp_path / "out", str(path))
    settings = [parse_override(word) for word in ("data.image_field=picture", "data.label_field=digit")]
    evaluate_checkpoint(Console(quiet=True), digits_run, str(path), None, "cpu", None, tmp_path / "out", settings)
    assert report(tmp_path / "out")["samples"] == 30
    for data, words in ((str(path), "optim.lr=1"), (None, "data.image_field=picture")):
        with pytest.raises(UserError, match=f"{words} has no effect|optim.lr has no effect"):
            measure(Console(quiet=True), digits_run, data, None, "cpu", None, tmp_path, [parse_override(words)])


def test_another_batch_size_changes_nothing(digits_run: Path, tmp_path: Path) -> None:
    evaluated(digits_run, tmp_path, batch_size=355)
    assert report(tmp_path)["top1"] == json.loads((digits_run / "summary.json").read_text())["best"]["top1"]


def test_unknown_classes_are_refused(digits_run: Path, tmp_path: Path) -> None:
    data = write_digits(tmp_path / "data", 20)
    (data / "3").rename(data / "three")
    with pytest.raises(UserError, match="three"):
        evaluated(digits_run, tmp_path / "out", str(data))


def test_data_that_is_gone_is_told_with_the_way_to_name_other_data(digits_run: Path, tmp_path: Path) -> None:
    loaded = checkpoint.load(checkpoint.find(digits_run))
    state = {**loaded.state, "config": {**loaded.state["config"], "data": {"source": "gone/away"}}}
    place = checkpoint.save(tmp_path, 1, loaded.tensors, state)
    with pytest.raises(UserError, match=r"gone/away[\s\S]*--data PATH"):
        evaluated(place, None)


def test_a_folder_that_cannot_be_made_is_told(digits_run: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="cannot create the folder"):
        evaluated(digits_run, tmp_path / "file" / "out")


def test_the_worst_confusions_of_many_classes_are_a_table() -> None:
    classes = [f"class {number}" for number in range(11)]
    answers = Answers(classes, np.array([0] * 5 + [7] * 3), np.array([0, 3, 3, 3, 4, 7, 8, 8]))
    said = io.StringIO()
    print_confusions(Console(file=said), answers)
    assert said.getvalue().splitlines() == [
        "the 3 most frequent confusions:",
        "times\tof\ttrue class\tanswer",
        "3\t5\tclass 0\tclass 3",
        "2\t3\tclass 7\tclass 8",
        "1\t5\tclass 0\tclass 4",
    ]
