"""A sweep as a user runs it: every combination and seed, one that fails, interrupted, resumed and extended."""

import json
import subprocess
import sys
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import pytest

import phalanx
from phalanx.runs.events import read_events
from tests.api.test_train import SMALL, interrupting

SHORT: dict[str, Any] = SMALL | {"train.length": "6st", "train.log_every": 2}
VALUES: dict[str, list[Any]] = {"optim.lr": [0.02, 0.1, 1e30], "schedule.kind": ["constant"]}


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> phalanx.Sweep:
    """Three rates, one of them far too high, of two seeds; interrupted in the second seed, and resumed."""
    folder = tmp_path_factory.mktemp("sweep") / "rates"
    with interrupting(folder / "trial-2-seed-1"):
        stopped = phalanx.sweep("digits", VALUES, seeds=2, settings=SHORT, folder=folder)
    assert not stopped.finished
    assert [run.state for trial in stopped.trials for run in trial.runs] == [
        *("finished", "finished"),
        *("finished", "stopped"),
        *("failed", "waiting"),
    ]
    first = (folder / "trial-1-seed-0" / "events.jsonl").read_bytes()
    resumed = stopped.resume()
    assert (folder / "trial-1-seed-0" / "events.jsonl").read_bytes() == first, "a run that is done is kept"
    assert any(record["kind"] == "resume" for record in read_events(folder / "trial-2-seed-1"))
    return resumed


def test_a_run_that_fails_is_told_and_does_not_end_the_sweep(sweep: phalanx.Sweep) -> None:
    assert not sweep.finished
    wrong = sweep.trials[2]
    assert [run.state for run in wrong.runs] == ["failed", "failed"]
    assert all("the loss is" in run.error for run in wrong.runs)
    assert wrong.mean is None
    assert "2 failed" in repr(sweep)


def test_the_table_has_mean_and_deviation_over_the_seeds(sweep: phalanx.Sweep) -> None:
    report = json.loads((sweep.path / "sweep.json").read_text())
    assert report["keys"] == ["optim.lr", "schedule.kind"]
    for trial in sweep.trials[:2]:
        scores = [phalanx.load(sweep.path / f"trial-{trial.number}-seed-{seed}").best.top1 for seed in (0, 1)]
        assert (trial.mean, trial.std) == (fmean(scores), stdev(scores))
        assert report["trials"][trial.number - 1]["mean"] == trial.mean
    means = [trial.mean or 0.0 for trial in sweep.trials]
    assert sweep.best.number == report["best"]["trial"] == means.index(max(means)) + 1
    lines = (sweep.path / "sweep.tsv").read_text().splitlines()
    assert lines[0].split("\t")[:4] == ["trial", "optim.lr", "schedule.kind", "top-1"]
    assert [line.split("\t")[1] for line in lines[1:]] == ["0.02", "0.1", "1e+30"]
    assert [line.endswith("\tbest") for line in lines[1:]].count(True) == 1
    assert (sweep.path / "sweep.png").stat().st_size > 5000
    assert sweep.figure().axes[0].get_xlabel() == "optim.lr"


def test_the_same_command_may_add_values_and_change_nothing_else(sweep: phalanx.Sweep) -> None:
    done = [sweep.path / run.run / "events.jsonl" for trial in sweep.trials[:2] for run in trial.runs]
    before = [path.read_bytes() for path in done]
    more = VALUES | {"optim.lr": [0.02, 0.05]}
    found = phalanx.sweep("digits", more, seeds=1, settings=SHORT, resume=sweep.path)
    assert [trial.values["optim.lr"] for trial in found.trials] == [0.02, 0.1, 1e30, 0.05]
    assert all(run.state == "finished" for run in found.trials[3].runs)
    assert [path.read_bytes() for path in done] == before
    with pytest.raises(phalanx.Error, match=r"model\.name=wrn10_2 cannot change a sweep that has begun"):
        phalanx.sweep("digits", VALUES, settings=SHORT | {"model.name": "wrn10_2"}, resume=sweep.path)
    with pytest.raises(phalanx.Error, match=r"is a sweep of optim.lr, schedule.kind, not of optim.momentum"):
        phalanx.sweep("digits", {"optim.momentum": [0, 0.5]}, settings=SHORT, resume=sweep.path)
    with pytest.raises(phalanx.Error, match="holds a sweep already"):
        phalanx.sweep("digits", VALUES, settings=SHORT, folder=sweep.path)


@pytest.mark.parametrize(
    ("values", "more", "message"),
    [
        ({"optim.lrr": [0.1, 0.2]}, {}, "there is no setting 'optim.lrr'"),
        ({"optim.lr": [0.1, "high"]}, {}, "optim.lr cannot be 'high'"),
        ({"optim.lr": []}, {}, "optim.lr has no values"),
        ({"optim.lr": [0.1, 1e-1]}, {}, "optim.lr=0.1 is given twice"),
        ({"optim.lr": [0.1]}, {}, "nothing to sweep"),
        ({"train.seed": [1, 2]}, {"seeds": 2}, "does not go together with --seeds"),
        ({"optim.lr": [0.1, 0.2]}, {"folds": 3}, "one fold at a time"),
        ({"data.fold": [1, 2]}, {}, "data.fold cannot be swept"),
        ({"data.source": ["digits", "nowhere"]}, {}, "nowhere"),
    ],
)
def test_what_cannot_be_swept_is_refused_before_anything_runs(
    values: dict[str, list[Any]], more: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(phalanx.Error, match=message):
        phalanx.sweep("digits", values, settings=SHORT, folder=tmp_path / "s", **more)
    assert not (tmp_path / "s").exists()


def test_runs_may_be_jobs_of_several_processes(tmp_path: Path) -> None:
    found = phalanx.sweep(
        "digits", {"optim.lr": [0.05, 0.1]}, settings=SHORT | {"train.length": "2st"}, workers=2, folder=tmp_path / "s"
    )
    assert found.finished
    assert {run.config.exchange.method for run in found.runs} == {"collective"}


def test_its_runs_can_be_jobs_of_a_launcher(tmp_path: Path) -> None:
    folder = tmp_path / "rates"
    words = ["digits", "optim.lr=0.1,0.2", *(f"{key}={value}" for key, value in SHORT.items()), "train.length=2st"]
    command = [sys.executable, "-m", "phalanx", "launch", "-n", "1", "--", "sweep", *words, "--folder", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert phalanx.Sweep(folder).finished
    assert [trial.values for trial in phalanx.Sweep(folder).trials] == [{"optim.lr": 0.1}, {"optim.lr": 0.2}]
    assert all((run.path / "job.json").is_file() for run in phalanx.Sweep(folder).runs)
