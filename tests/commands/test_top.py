"""`phalanx top`: a job as it runs, in a terminal; and runs that have ended, are damaged, or are on another host."""

import io
import json
import os
import signal
from pathlib import Path

import pytest
from rich.console import Console

from phalanx.commands.top import show_top
from phalanx.errors import UserError
from tests.board.made_runs import make_run
from tests.conftest import LEAN
from tests.data.samples import assert_helpful
from tests.terminal import Terminal
from tests.waiting import until


def top(run: str | None, *, ssh: str = "ssh") -> list[str]:
    console = Console(file=io.StringIO(), width=80)
    show_top(console, run, once=True, ssh=ssh)
    file = console.file
    assert isinstance(file, io.StringIO)
    return file.getvalue().splitlines()


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    make_run(tmp_path / "runs" / "old", steps=20)
    make_run(tmp_path / "runs" / "new", steps=20, workers=2)
    os.utime(tmp_path / "runs" / "old" / "events.jsonl", (0, 0))
    os.utime(tmp_path / "runs" / "old" / "config.yaml", (0, 0))
    return tmp_path / "runs"


def test_a_finished_run(runs: Path) -> None:
    title, state, *lines = top(None)
    assert (title, state) == ("new  tiny", "state       finished")
    assert any(line.startswith("run ") and "20/20" in line for line in lines)
    assert any("top-1 90.00 %  top-3 95.00 %  best 90.00 %" in line for line in lines)
    assert any(line.startswith("worker 1 ") and "slowest: +96 % compute" in line for line in lines)
    assert not any(" left" in line for line in lines)
    assert top("old")[0] == top(str(runs / "old"))[0] == "old  tiny"
    assert top("runs")[0] == title


def test_a_job_by_its_number(runs: Path) -> None:
    (runs / "old" / "job.json").write_text(json.dumps({"id": "20-ab12", "state": "ended", "roles": []}))
    (runs / "new" / "batch.json").write_text(json.dumps({"scheduler": "slurm", "job": "4711"}))
    assert top("20-ab12")[0].startswith("old ")
    assert top("4711")[0].startswith("new ")


def test_a_damaged_run(runs: Path) -> None:
    events = (runs / "new" / "events.jsonl").read_text().splitlines()
    (runs / "new" / "events.jsonl").write_text("\n".join([*events[:8], "{nonsense", *events[9:12]]) + "\n")
    (runs / "new" / "job.json").write_text('{"roles": 7, "sta')
    _, state, *lines = top("new")
    assert state.startswith("state       killed")
    assert any(line.startswith("problem ") and "events.jsonl, line 9 is not an event" in line for line in lines)
    (runs / "new" / "events.jsonl").write_bytes(os.urandom(10_000))
    assert any(line.startswith("problem ") for line in top("new"))


@pytest.mark.parametrize("name", ["nothing", "runs/old/checkpoints"])
def test_no_such_run(runs: Path, name: str) -> None:
    with pytest.raises(UserError) as caught:
        top(name)
    assert_helpful(caught.value, name, "phalanx runs")


def test_no_run_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError) as caught:
        top(None)
    assert_helpful(caught.value, "no run in runs", "HOST:FOLDER")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError) as caught:
        top("empty")
    assert_helpful(caught.value, "no run in empty", "HOST:FOLDER")


def test_a_run_of_another_host(runs: Path, tmp_path: Path) -> None:
    """What stands in for ssh runs the command here; tests/board/test_mirror.py has real ones."""
    ssh = tmp_path / "ssh"
    ssh.write_text('#!/bin/sh\nfor last; do :; done\nexec sh -c "$last"\n')
    ssh.chmod(0o755)
    title, state, *lines = top(f"h2:{runs}/new", ssh=str(ssh))
    assert title.startswith("h2:/")
    assert state == "state       finished"
    assert any("20/20" in line for line in lines)
    with pytest.raises(UserError) as caught:
        top(f"h2:{runs}", ssh=str(ssh))
    assert_helpful(caught.value, "is not one run", "new, old")
    with pytest.raises(UserError) as caught:
        top(f"h2:{runs}/nowhere", ssh=str(ssh))
    assert_helpful(caught.value, "nowhere", "h2")


def test_a_job_in_a_cluster_has_its_run_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError) as caught:
        top("k8s:digits")
    assert_helpful(caught.value, "k8s:digits", "phalanx get")


def test_a_job_in_a_terminal_is_seen_from_another_one(tmp_path: Path) -> None:
    """Two workers and a parameter server, and one of the workers is killed."""
    job = ["train", "digits", "model.name=wrn10_1", "train.length=2000ep", "train.log_every=5", *LEAN]
    job += ["--workers", "2", "--update-method", "pserver", "--mode", "async", "--out", "runs/a"]
    with Terminal(job, cwd=tmp_path) as here:
        until(lambda: here.has("worker 1 ") and here.has("validation "), why=lambda: "\n".join(here.lines))
        assert all(here.has(text) for text in (" left", "epoch ", "training ", "img/s", "compute "))
        with Terminal(["top"], cwd=tmp_path, columns=100) as there:
            until(lambda: there.has("worker 1 ") and there.has(" left"), why=lambda: "\n".join(there.lines))
            assert there.has("running")
            there.press(b"q")
            assert there.code() == 0
            assert sum(line.startswith("worker 1 ") for line in there.lines) == 1
        roles = {one["name"]: one for one in json.loads((tmp_path / "runs/a/job.json").read_text())["roles"]}
        os.kill(roles["trainer-1"]["pid"], signal.SIGKILL)
        until(lambda: here.has("trainer-1 on localhost"), why=lambda: "\n".join(here.lines))
        here.process.send_signal(signal.SIGINT)
        here.code()
        said = here.lines
    left = [line for line in said if line.startswith(("worker ", "epoch ", "run   ", "training "))]
    assert [line.split()[1] for line in left] == ["digits,"], "\n".join(said)  # the first of what a run prints
    assert any("SIGINT: finishing this step" in line for line in said)
    assert any("checkpoint of step" in line for line in said)
    assert here.written.rindex("\x1b[?25h") > here.written.rindex("\x1b[?25l")  # the cursor is back
