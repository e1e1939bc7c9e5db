"""Profiles of real runs: one in this process, and one of a job of two workers."""

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from safetensors.torch import load_file

from phalanx.cli import profile as command
from phalanx.engine.profile.part import PARTS
from phalanx.errors import UserError
from phalanx.observe.profile_report import layer_rows, print_profile
from phalanx.runs import checkpoint
from phalanx.runs.profile_file import PROFILE_FILE, TRACE_FILE, read_profile
from tests.conftest import LEAN, train_digits

SHORT = ("model.name=wrn10_1", "train.length=5st", "eval.every=5st", *LEAN)
PROFILED = ("train.profile.steps=2", "train.profile.start=1")


@pytest.fixture(scope="module")
def profiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was profiled, and went on."""
    return train_digits(tmp_path_factory.mktemp("profiled") / "run", *SHORT, *PROFILED)


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder and the output of `phalanx profile` with two workers."""
    folder = tmp_path_factory.mktemp("job") / "run"
    words = ["profile", "digits", "--model", "mlp", "--workers", "2", "--steps", "2", "--warmup", "1", *LEAN]
    done = subprocess.run(
        [sys.executable, "-m", "phalanx", *words, "--out", str(folder)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder, done.stdout


def check_nested(events: list[dict[str, Any]]) -> None:
    """Calls of one thread lie in one another, or one after the other."""
    open_: list[float] = []
    for event in sorted(events, key=lambda one: (one["ts"], -one["dur"])):
        end = event["ts"] + event["dur"]
        while open_ and open_[-1] <= event["ts"] + 1e-6:
            open_.pop()
        assert not open_ or end <= open_[-1] + 1e-3, event
        open_.append(end)


def test_training_does_not_change(profiled: Path, tmp_path: Path) -> None:
    plain = train_digits(tmp_path / "plain", *SHORT)
    files = [next(checkpoint.path_of(run / "checkpoints", 5).glob("model*.safetensors")) for run in (profiled, plain)]
    with_it, without = map(load_file, files)
    assert with_it.keys() == without.keys()
    assert all(bool((with_it[name] == without[name]).all()) for name in with_it)


def test_parts_and_kinds_add_up_to_a_step(profiled: Path) -> None:
    profile = read_profile(profiled)
    (worker,) = profile["workers"]
    assert (profile["steps"], profile["first_step"], len(worker["steps"])) == (2, 2, 2)
    for step in worker["steps"]:
        assert sum(step[name] for name in PARTS) == pytest.approx(step["ms"], rel=0.02)
    assert sum(one["ms"] for one in worker["kinds"]) == pytest.approx(worker["ms"], rel=0.02)
    kinds = {one["kind"] for one in worker["kinds"]}
    assert kinds >= {"convolution", "normalization", "optimizer", "data wait", "Python and dispatch"}


def test_every_layer_has_both_directions(profiled: Path) -> None:
    (worker,) = read_profile(profiled)["workers"]
    layers = {one["path"]: one for one in worker["layers"]}
    of_kind = [one for one in layers.values() if one["type"] in ("TunedConv2d", "BatchNorm2d", "Linear")]
    assert len(of_kind) > 5
    assert all(one["forward_ms"] > 0 and one["backward_ms"] > 0 for one in of_kind)
    assert layers[""]["forward_ms"] >= max(one["forward_ms"] for one in layers.values())
    shallow, deep = layer_rows(worker, 1), layer_rows(worker, 9)
    assert len(deep) > len(shallow) > 1


def test_the_trace_has_steps_layers_and_operators_inside_one_another(profiled: Path) -> None:
    trace = json.loads((profiled / TRACE_FILE).read_text())
    calls = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    assert {"step 2", "step 3", "forward", "backward", "update", "model", "fc"} <= {event["name"] for event in calls}
    for thread in {event["tid"] for event in calls}:
        check_nested([event for event in calls if event["tid"] == thread])


def test_the_table_in_a_terminal_and_as_lines(profiled: Path) -> None:
    profile = read_profile(profiled)
    (worker,) = profile["workers"]
    # On busy cores a small layer may be too small a share of its step to be shown.
    layers = [one for one in worker["layers"] if one["path"] and "." not in one["path"]]
    largest = max(layers, key=lambda one: one["forward_ms"] + one["backward_ms"])["path"]
    for terminal in (True, False):
        out = io.StringIO()
        print_profile(Console(file=out, force_terminal=terminal, width=100), profile, depth=1)
        shown = out.getvalue()
        assert [
            word for word in ("waiting for data", "backward", "convolution", largest, "change") if word not in shown
        ] == []


def test_a_job_is_one_profile_with_a_row_for_each_worker(job: tuple[Path, str]) -> None:
    folder, shown = job
    profile = read_profile(folder)
    assert [worker["rank"] for worker in profile["workers"]] == [0, 1]
    assert all(worker["waited_ms"] is not None for worker in profile["workers"])
    # One machine has one clock: what was found lies within what was said.
    clock = profile["workers"][1]["clock"]
    assert abs(clock["ahead_ms"]) <= clock["error_ms"] + 1e-6
    assert f"slowest: trainer-{profile['slowest']['rank']}" in shown
    assert "exchange that is not hidden" in shown
    trace = json.loads((folder / TRACE_FILE).read_text())
    assert {event["pid"] for event in trace["traceEvents"]} == {0, 1}
    steps = {event["pid"]: event for event in trace["traceEvents"] if event["name"] == "step 2"}
    assert steps[0]["ts"] < steps[1]["ts"] + steps[1]["dur"]
    assert steps[1]["ts"] < steps[0]["ts"] + steps[0]["dur"]


def test_a_profile_alone_evaluates_and_saves_nothing(job: tuple[Path, str]) -> None:
    folder, _ = job
    assert not (folder / "checkpoints").exists()
    assert '"kind":"eval"' not in (folder / "events.jsonl").read_text().replace(" ", "")


def test_a_profile_is_shown_again(profiled: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = {"settings": [str(profiled)], "depth": 2, "worker": 0}
    assert command.run(given) == 0
    assert "--depth 3" in capsys.readouterr().out
    with pytest.raises(UserError, match="there is no worker 3"):
        command.run({**given, "worker": 3})


def test_a_run_that_is_too_short_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="11 steps cannot be profiled: the run has 5"):
        train_digits(tmp_path / "run", *SHORT, "train.profile.steps=3")


def test_a_damaged_profile_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="has no profile"):
        read_profile(tmp_path)
    for content in ("{", "[]", '{"version": 99}', '{"version": 1, "workers": []}'):
        (tmp_path / PROFILE_FILE).write_text(content)
        with pytest.raises(UserError, match="cannot be read as a profile"):
            read_profile(tmp_path)
