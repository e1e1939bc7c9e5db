"""Rows of results from real runs, in whatever state these are."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from phalanx.errors import UserError
from phalanx.observe.results import RunResult, read_results
from phalanx.runs.events import read_events
from tests.conftest import LEAN
from tests.waiting import until


def row(run: Path) -> RunResult:
    return read_results([run])[0]


def test_a_finished_run_says_what_its_summary_says(digits_run: Path) -> None:
    summary, found = json.loads((digits_run / "summary.json").read_text()), row(digits_run)
    assert (found.best_top1, found.best_topk, found.k) == (summary["best"]["top1"], summary["best"]["topk"], 3)
    assert (found.final_top1, found.final_topk) == (summary["last"]["top1"], summary["last"]["topk"])
    assert (found.steps, found.total_steps, found.epochs) == (summary["steps"], summary["steps"], 2)
    assert (found.recipe, found.model, found.state) == ("digits", "wrn10_1", "finished")
    assert (found.workers, found.servers, found.update_method, found.mode) == (1, 0, "local", None)
    assert found.images_per_s == pytest.approx(summary["samples_per_s"], rel=0.2)
    assert found.wall_s == pytest.approx(summary["wall_s"], abs=1.0)
    assert found.precision == summary["decisions"]["precision"].partition(" ")[0]
    assert found.remarks == []


@pytest.mark.parametrize(
    ("words", "servers", "mode"),
    [(["--workers", "2"], 0, None), (["--update-method", "pserver", "--mode", "async", "--workers", "2"], 1, "async")],
    ids=["collective", "async"],
)
def test_speed_is_that_of_all_workers(tmp_path: Path, words: list[str], servers: int, mode: str | None) -> None:
    settings = ["model.name=wrn10_1", "train.length=2ep", "train.log_every=5", *LEAN, *words]
    command = [sys.executable, "-m", "phalanx", "train", "digits", *settings, "--out", str(tmp_path / "run")]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    found = row(tmp_path / "run")
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert (found.workers, found.servers, found.mode) == (2, servers, mode)
    # Each worker's clock is its own, and what the last steps took before a report is in the summary alone.
    assert found.images_per_s == pytest.approx(summary["samples_per_s"], rel=0.5)
    assert found.steps_per_s is not None
    if mode is None:
        samples = read_events(tmp_path / "run")[0]["samples_per_step"]
        assert found.images_per_s == pytest.approx(samples * found.steps_per_s, rel=0.1)  # the last batch is smaller


def test_a_run_that_runs_and_one_that_was_killed(tmp_path: Path) -> None:
    run = tmp_path / "run"
    settings = ["model.name=wrn10_1", "train.length=2000ep", "eval.every=100%", "train.log_every=2", *LEAN]
    command = [sys.executable, "-m", "phalanx", "train", "digits", *settings, "--out", str(run)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until(lambda: (run / "log.txt").exists() and "step 4:" in (run / "log.txt").read_text())
        runs = row(run)
    finally:
        process.kill()
        process.wait()
    for found in (runs, row(run)):
        assert found.state == "unfinished"
        assert found.steps is not None
        assert found.steps >= 4
        assert found.images_per_s is not None
        assert (found.best_top1, found.k) == (None, None)
        remarks = "; ".join(found.remarks)
        assert "nothing is evaluated yet" in remarks
        assert f"running or killed at step {found.steps:,} of 46,000; last event" in remarks


def test_damage_is_remarked_and_what_can_be_read_is(digits_run: Path, tmp_path: Path) -> None:
    whole = row(digits_run)
    run = Path(shutil.copytree(digits_run, tmp_path / "run"))
    (run / "config.yaml").write_text("model: [")
    shutil.rmtree(run / "checkpoints")
    found = row(run)
    assert found.remarks == ["config.yaml cannot be read", "no checkpoint here"]
    assert (found.recipe, found.workers, found.best_top1) == (None, None, whole.best_top1)
    (run / "config.yaml").write_text("name: x\nmodel: {name: y}\n")
    assert row(run).remarks[0] == "config.yaml has no 'exchange'"
    for damage in ("[]\n", '{"kind": "eval", "t": 1}\n', '{"kind": "step", "t": "now"}\n'):
        (run / "events.jsonl").write_text((digits_run / "events.jsonl").read_text() + damage)
        found = row(run)
        assert "the summary was read instead" in found.remarks[1], damage
        assert (found.best_top1, found.final_topk, found.state) == (whole.best_top1, whole.final_topk, "finished")
    (run / "summary.json").unlink()
    found = row(run)
    damaged = len((run / "events.jsonl").read_text().splitlines())
    assert f"events.jsonl, line {damaged} is not an event" in found.remarks[1]
    assert (found.best_top1, found.state) == (None, "unknown")
    (run / "events.jsonl").write_text("")
    assert "training has not begun" in row(run).remarks


def test_runs_of_the_same_name_are_told_apart_and_what_is_no_run_refused(digits_run: Path, tmp_path: Path) -> None:
    for folder in ("one", "two"):
        shutil.copytree(digits_run, tmp_path / folder / "run")
    assert [one.run for one in read_results([tmp_path / "one/run", tmp_path / "two/run"])] == ["one/run", "two/run"]
    with pytest.raises(UserError, match="is not a run"):
        read_results([digits_run, tmp_path])
