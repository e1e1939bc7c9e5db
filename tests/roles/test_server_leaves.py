"""A parameter server that is told to end has its workers save and leave first; whatever the launcher."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from phalanx.net.interfaces import free_port
from phalanx.runs import checkpoint
from phalanx.runs.events import EVENTS_FILE, read_events
from tests.conftest import LEAN
from tests.waiting import until

TRAIN = [sys.executable, "-m", "phalanx", "train", "digits", "model.name=wrn10_1", *LEAN, "train.log_every=1"]
LONG = ["train.length=100000st", "eval.every=100000st", "checkpoint.every=100000st"]


@pytest.fixture
def pods(tmp_path: Path) -> Iterator[list["subprocess.Popen[str]"]]:
    """Two trainers and a server with the variables of a Kubernetes job's pods, on this machine."""
    variables = {
        "PHALANX_WORLD": "2",
        "PHALANX_SERVERS": f"tcp://127.0.0.1:{free_port('127.0.0.1')}",
        "PHALANX_KEY": "k" * 64,
        "PHALANX_ELASTIC": "1",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port("127.0.0.1")),
    }
    with ExitStack() as stack:
        started = []
        for index in range(3):
            process = subprocess.Popen(
                [*TRAIN, *LONG, "--out", str(tmp_path / "run")],
                env={**os.environ, **variables, "JOB_COMPLETION_INDEX": str(index)},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            stack.callback(process.wait)
            stack.callback(process.kill)
            started.append(process)
        until(lambda: steps(tmp_path / "run") > 1)
        yield started


def steps(run: Path) -> int:
    if not (run / EVENTS_FILE).exists():
        return 0
    return max((record["step"] for record in read_events(run) if record["kind"] == "step"), default=0)


@pytest.mark.slow
@pytest.mark.parametrize("told", ["the server", "all"])
def test_what_was_trained_is_saved(pods: list["subprocess.Popen[str]"], tmp_path: Path, told: str) -> None:
    """Only the server is told, as when its node is drained; or all at once, as when the job is deleted."""
    for process in reversed(pods) if told == "all" else pods[2:]:
        process.send_signal(signal.SIGTERM)
    said = [process.communicate(timeout=180)[0] for process in pods]
    last = checkpoint.latest_path(tmp_path / "run" / "checkpoints")
    assert last is not None, said
    assert checkpoint.step_of(last) == steps(tmp_path / "run") > 1, said
    # 75: not the end of training, the pod starts again if its job does
    codes = [process.returncode for process in pods]
    assert codes == ([75, 75, 143] if told == "the server" else [143, 143, 143]), said
    stop = [record for record in read_events(tmp_path / "run") if record["kind"] == "stop"][-1]
    assert stop["reason"] == ("a parameter server was stopped" if told == "the server" else "SIGTERM")
