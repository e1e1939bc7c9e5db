"""Going on from an earlier checkpoint: exact in every mode, refused where it cannot be, and nothing is lost."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from phalanx.errors import UserError
from phalanx.runs import checkpoint
from phalanx.runs.events import read_events
from phalanx.runs.resume import choose, step_at
from phalanx.runs.rewind import aside_warnings, find_step, put_aside_after
from tests.conftest import LEAN, train_digits

# 16 steps an epoch, the last of them with two samples only
SMALL = ["model.name=wrn10_1", "train.batch_size=96", "train.length=2ep", "train.log_every=4", *LEAN]
SMALL += ["checkpoint.every=4st", "checkpoint.keep_last=50", "optim.ema=0.9", "augment.mixup=0.2"]
SMALL += ["machine.precision=fp32"]


def phalanx(*words: str, code: int = 0) -> str:
    command = [sys.executable, "-m", "phalanx", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def saved(folder: Path) -> list[str]:
    return [path.name for path in checkpoint.steps_saved(folder)]


def metrics(run: Path) -> list[dict[str, Any]]:
    kept = ("kind", "step", "loss", "top1", "topk", "lr", "used", "samples", "best")
    kinds = ("step", "epoch", "eval")
    return [{name: one.get(name) for name in kept} for one in read_events(run) if one["kind"] in kinds]


def aside_of(run: Path) -> Path:
    (found,) = (run / "checkpoints").glob("after-step-*")
    return found


def assert_same_end(run: Path) -> None:
    """What was learned anew is what was learned before, which is still there, bit for bit."""
    before, now = aside_of(run), run / "checkpoints"
    assert saved(before)[-1] == saved(now)[-1]
    one, other = (checkpoint.load(folder / saved(folder)[-1]).tensors for folder in (before, now))
    assert one.keys() == other.keys()
    for group, tensors in one.items():
        for name, tensor in tensors.items():
            assert torch.equal(tensor, other[group][name]), f"{group} {name}"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with all of its checkpoints. Only to be read: copy it to write into it."""
    return train_digits(tmp_path_factory.mktemp("whole") / "run", *SMALL)


@pytest.fixture
def run(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "a [b]run ü"))


@pytest.mark.parametrize("words", [["--at", "16st"], ["--at", "50%"], ["--at", "1ep"], []], ids=" ".join)
def test_going_back_ends_as_before_bit_for_bit(run: Path, words: list[str]) -> None:
    before, place = metrics(run), run if words else run / "checkpoints" / "step-00000016"
    said = phalanx("train", "--resume", str(place), *words)
    assert "resumed at step 16 from" in said
    assert f"they are kept in {aside_of(run)} (step-00000020, step-00000024, step-00000028, step-00000032)" in said
    assert_same_end(run)
    assert metrics(run) == before
    assert "after step 16" in (run / "log.txt").read_text()


def test_a_checkpoint_is_named_by_its_number_from_anywhere(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert choose(run / "checkpoints" / "step-8", None)[1] == 8
    monkeypatch.chdir(run / "checkpoints")
    folder, step = choose(Path("step-00000008"), None)
    assert (folder.path, step) == (run, 8)
    assert choose(run, None) == (type(folder)(run), None)


def test_places_are_counted_as_the_run_counts(run: Path) -> None:
    assert [step_at(run, at) for at in ("1ep", "0.25ep", "5st", "100%", "25%", "960ex")] == [16, 4, 5, 32, 8, 10]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--at", "17st"], "no checkpoint of step 17 in"),
        (["--at", "17st"], "8 (0.5ep), 12 (0.75ep), 16 (1ep), 20 (1.25ep)"),
        (["--at", "17st", "--workers", "2"], "no checkpoint of step 17 in"),
        (["--at", "3"], "'3' is not a duration"),
        (["--at", "-1ep"], "is not a duration"),
    ],
)
def test_what_is_not_there_is_refused_with_what_is(run: Path, words: list[str], expected: str) -> None:
    before = saved(run / "checkpoints")
    assert expected in " ".join(phalanx("train", "--resume", str(run), *words, code=2).split())
    assert saved(run / "checkpoints") == before


def test_a_copy_beside_a_checkpoint_is_no_checkpoint(run: Path) -> None:
    folder = run / "checkpoints"
    shutil.copytree(folder / "step-00000008", folder / "step-00000099.bak")
    assert checkpoint.latest_path(folder) == folder / "step-00000032"
    with pytest.raises(UserError, match="no checkpoint of step 99"):
        find_step(folder, 99)
    with pytest.raises(UserError, match="no checkpoint of step 4") as caught:
        find_step(run / "nothing", 4)
    assert caught.value.why == "there is none"


def test_contradictions_are_refused(run: Path) -> None:
    assert "--at does not go without --resume" in phalanx("train", "digits", "--at", "1ep", code=2)
    with pytest.raises(UserError, match="does not go together with a checkpoint"):
        choose(run / "checkpoints" / "step-8", "1ep")
    with pytest.raises(UserError, match="is not a run"):
        choose(run / "step-8", None)
    (run / "events.jsonl").write_text("")
    with pytest.raises(UserError, match="ended before training began"):
        choose(run, "1ep")


@pytest.mark.parametrize("workers", [[], ["--workers", "2"]], ids=["alone", "launched"])
def test_a_damaged_one_is_refused_and_nothing_is_moved(run: Path, workers: list[str]) -> None:
    before = saved(run / "checkpoints")
    os.truncate(run / "checkpoints" / "step-00000008" / "model.safetensors", 100)
    said = phalanx("train", "--resume", str(run), "--at", "8st", *workers, code=2)
    assert "is damaged" in said
    assert "model.safetensors has 100 bytes" in said
    assert saved(run / "checkpoints") == before
    assert json.loads((run / "checkpoints" / "best.json").read_text())["step"] > 8


def test_one_that_was_put_aside_can_be_brought_back(run: Path) -> None:
    folder = run / "checkpoints"
    put_aside_after(folder, 8, "then")
    put_aside_after(folder, 4, "then")
    with pytest.raises(UserError, match="step 12") as caught:
        find_step(folder, 12)
    assert "after-step-00000008-then/step-00000012" in caught.value.why
    with pytest.raises(UserError, match="no longer part of its run"):
        choose(folder / "after-step-00000008-then" / "step-00000012", None)
    (folder / "after-step-00000008-then" / "step-00000012").rename(folder / "step-00000012")
    assert find_step(folder, 12) == folder / "step-00000012"
    assert "step-00000016, " in aside_warnings(folder, 8)[0]
    put_aside_after(folder, 4, "then")  # the same second
    assert len(aside_warnings(folder, 4)) == 2


def test_the_best_is_never_one_that_is_void(run: Path) -> None:
    folder = run / "checkpoints"
    checkpoint.mark_best(folder, 32, 0.9)
    put_aside_after(folder, 32)
    assert checkpoint.best_path(folder) == folder / "step-00000032"
    put_aside_after(folder, 20)
    assert not (folder / "best.json").exists()
    # What was best until then is marked when the run goes on, and a run that learns nothing more keeps it.
    phalanx("train", "--resume", str(run), "--at", "20st", "optim.lr=1e-12", "checkpoint.keep_last=1")
    best = [one for one in read_events(run) if one["kind"] == "eval" and one["best"]][-1]
    assert checkpoint.best_path(folder) == folder / f"step-{best['step']:08d}"


def test_a_best_before_the_place_stays(run: Path) -> None:
    folder = run / "checkpoints"
    checkpoint.mark_best(folder, 16, 0.9)
    put_aside_after(folder, 20)
    assert checkpoint.best_path(folder) == folder / "step-00000016"


MODES = {
    "collective": ["--workers", "2"],
    "pserver": ["--update-method", "pserver", "--workers", "2", "--servers", "2"],
}


@pytest.mark.parametrize("mode", MODES)
def test_all_processes_of_a_job_go_back_together(tmp_path: Path, mode: str) -> None:
    run = tmp_path / "run"
    phalanx("train", "digits", *SMALL, "train.batch_size=48", *MODES[mode], "--out", str(run))
    before = metrics(run)
    said = phalanx("train", "--resume", str(run / "checkpoints" / "step-12"))
    assert "resumed at step 12" in said
    assert "(step-00000016, step-00000020" in said
    assert_same_end(run)
    assert metrics(run) == before


def test_under_a_launcher_that_is_not_ours(tmp_path: Path) -> None:
    run = tmp_path / "run"
    phalanx("train", "digits", *SMALL, "train.batch_size=48", "--workers", "2", "--out", str(run))
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    words = ["-m", "phalanx", "train", "--resume", str(run), "--at", "50%"]
    done = subprocess.run([*torchrun, *words], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "resumed at step 16" in done.stdout
    assert_same_end(run)


def test_an_evaluator_measures_anew_what_has_become_void(tmp_path: Path) -> None:
    run = tmp_path / "run"
    phalanx("train", "digits", *SMALL, "eval.every=8st", "--evaluator", "--out", str(run))
    before = metrics(run)
    said = phalanx("train", "--resume", str(run), "--at", "8st")
    assert "resumed at step 8" in said
    assert_same_end(run)

    def measured(all_of_them: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return sorted((one for one in all_of_them if one["kind"] == "eval"), key=lambda one: int(one["step"]))

    assert measured(metrics(run)) == measured(before)
    best = [one for one in measured(metrics(run)) if one["best"]][-1]
    assert checkpoint.best_path(run / "checkpoints") == run / "checkpoints" / f"step-{best['step']:08d}"
