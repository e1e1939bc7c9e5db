"""A search as a user runs it: chosen by optuna from what was found, interrupted, resumed, and made longer."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

import phalanx
from phalanx.api.sweep_search import Search, suggest
from phalanx.config.ranges import Range
from phalanx.observe.sweep_results import Trial, TrialRun
from tests.api.test_sweep import SHORT
from tests.api.test_train import interrupting

VALUES: dict[str, Any] = {"optim.lr": "1e-4..1:log", "optim.momentum": [0, "9e-1"]}
SETTINGS = SHORT | {"train.length": "3st"}


def _trial(number: int, values: dict[str, Any], score: float | None) -> Trial:
    run = TrialRun(f"trial-{number}", 0, "finished" if score is not None else "failed", score)
    return Trial(number, values, (run,), "top1")


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> phalanx.Sweep:
    """Three trials; interrupted in the second, resumed, and made longer by one."""
    pytest.importorskip("optuna")
    folder = tmp_path_factory.mktemp("search") / "rates"
    with interrupting(folder / "trial-2-seed-0"):
        stopped = phalanx.sweep("digits", VALUES, search="optuna", trials=2, settings=SETTINGS, folder=folder)
    assert [run.state for trial in stopped.trials for run in trial.runs] == ["finished", "stopped"]
    assert phalanx.sweep(resume=folder, trials=3).finished
    return phalanx.Sweep(folder)


def test_the_next_values_follow_from_what_was_found_and_nothing_else(found: phalanx.Sweep) -> None:
    report = json.loads((found.path / "sweep.json").read_text())
    search = Search.from_data(report["search"])
    assert search.space == {"optim.lr": Range(1e-4, 1.0, log=True), "optim.momentum": [0.0, 0.9]}
    assert len(found.trials) == 3
    for number, trial in enumerate(found.trials):
        assert trial.values == suggest(search, found.trials[:number])
        assert 1e-4 <= trial.values["optim.lr"] <= 1
    config = found.runs[2].config
    assert config.optim.lr == found.trials[2].values["optim.lr"]
    assert config.train.batch_size == found.runs[0].config.train.batch_size
    assert found.best.mean == max(trial.mean or 0 for trial in found.trials)


def test_table_and_figure_have_all_trials(found: phalanx.Sweep) -> None:
    lines = (found.path / "sweep.tsv").read_text().splitlines()
    assert lines[0].split("\t")[:3] == ["trial", "optim.lr", "optim.momentum"]
    assert len(lines) == 4
    panels = found.figure().axes
    assert [panel.get_xlabel() for panel in panels] == ["optim.lr", "optim.momentum"]
    assert (found.path / "sweep.png").stat().st_size > 5000


def test_a_search_cannot_become_another_one(found: phalanx.Sweep) -> None:
    with pytest.raises(phalanx.Error, match="is a search already"):
        phalanx.sweep("digits", VALUES, search="optuna", trials=9, settings=SETTINGS, resume=found.path)


def test_good_values_are_looked_for_near_good_ones_and_failures_are_avoided() -> None:
    pytest.importorskip("optuna")
    search = Search({"optim.lr": Range(1e-4, 1.0, log=True)}, trials=30, seeds=1, first_seed=0)
    trials: list[Trial] = []
    for number in range(30):
        lr = suggest(search, trials)["optim.lr"]
        score = None if lr > 0.3 else 1 / (1 + abs(lr - 0.01) * 100)
        trials.append(_trial(number + 1, {"optim.lr": lr}, score))
    late = [trial.values["optim.lr"] for trial in trials[15:]]
    assert sum(0.001 < lr < 0.1 for lr in late) > 10
    assert sum(lr > 0.3 for lr in late) < 3


@pytest.mark.parametrize(
    ("values", "more", "message"),
    [
        ({"optim.lr": "0.1..1"}, {}, "a range of numbers needs a search"),
        ({"optim.lr": [0.1, 0.2]}, {"trials": 3}, "--trials is for a search"),
        ({"optim.lr": "0.1..1"}, {"search": "random", "trials": 3}, "there is no search 'random'"),
        ({"optim.lr": "0.1..1"}, {"search": "optuna"}, "needs its number of trials"),
        ({"optim.lr": "0.1..1"}, {"search": "optuna", "trials": 0}, "--trials cannot be 0"),
        ({}, {"search": "optuna", "trials": 3}, "nothing to search"),
        ({"optim.lr": "fast"}, {"search": "optuna", "trials": 3}, "the values of optim.lr cannot be 'fast'"),
        ({"optim.momentum": "0.5..1.5"}, {"search": "optuna", "trials": 3}, "optim.momentum cannot be 1.5"),
        ({"train.seed": "0..9"}, {"search": "optuna", "trials": 3}, "train.seed cannot be searched"),
        ({"data.fold": "1..3"}, {"search": "optuna", "trials": 3}, "data.fold cannot be swept"),
    ],
)
def test_what_cannot_be_searched_is_refused_before_anything_runs(
    values: dict[str, Any], more: dict[str, Any], message: str, tmp_path: Path
) -> None:
    pytest.importorskip("optuna")
    with pytest.raises(phalanx.Error, match=message):
        phalanx.sweep("digits", values, settings=SETTINGS, folder=tmp_path / "s", **more)
    assert not (tmp_path / "s").exists()


def test_without_optuna_the_message_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(phalanx.Error, match="optuna is not installed") as caught:
        phalanx.sweep("digits", VALUES, search="optuna", trials=3, settings=SETTINGS, folder=tmp_path / "s")
    assert "phalanx[optuna]" in caught.value.remedy
