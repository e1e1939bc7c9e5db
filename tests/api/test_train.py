"""`phalanx.train` in the user's own process: same results, nothing left changed, errors and interrupts."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

import phalanx
from phalanx.runs import checkpoint

SMALL: dict[str, Any] = {
    "model.name": "wrn10_1",
    "machine.threads": 1,
    "machine.precision": "fp32",
    "train.curves": False,
}


def weights(run: phalanx.Run) -> dict[str, torch.Tensor]:
    return checkpoint.load(checkpoint.find(run.path, prefer_best=False)).tensors["model"]


def same(left: phalanx.Run, right: phalanx.Run) -> bool:
    one, other = weights(left), weights(right)
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


@contextmanager
def interrupting(run: Path, number: int = signal.SIGINT) -> Iterator[None]:
    """Sends this process a signal after the first step of a run."""

    def wait() -> None:
        while not (run / "events.jsonl").exists() or '"kind": "step"' not in (run / "events.jsonl").read_text():
            time.sleep(0.02)
        os.kill(os.getpid(), number)

    thread = threading.Thread(target=wait)
    thread.start()
    yield
    thread.join()


@pytest.mark.numeric
def test_two_runs_in_one_process_are_those_of_two_processes(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    first = phalanx.train("digits", settings=SMALL | {"train.length": "6st"}, out=tmp_path / "first")
    torch.rand(7)
    second = phalanx.train("digits", settings=SMALL | {"train.length": "6st"}, seed=0, out=tmp_path / "second")
    assert capfd.readouterr() == ("", "")  # neither a terminal nor a notebook
    words = [f"{key}={value}" for key, value in SMALL.items()]
    command = [sys.executable, "-m", "phalanx", "train", "digits", "train.length=6st", *words, "--out", "own"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    assert same(first, second)
    assert same(first, phalanx.load(tmp_path / "own"))
    assert first.finished
    assert first.config == second.config


def test_what_training_sets_is_set_back(tmp_path: Path) -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    torch.set_num_threads(2)  # the run has one
    before = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled(), sys.stderr
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    threads = set(threading.enumerate())
    run = phalanx.train("digits", settings=SMALL | {"train.length": "1st"}, out=tmp_path / "run", log_dir=tmp_path)
    run.model()
    run.predict(torch.zeros(8, 8))
    assert torch.equal(torch.rand(3), expected)
    assert (torch.get_num_threads(), torch.are_deterministic_algorithms_enabled(), sys.stderr) == before
    assert handlers == [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    left = [one.name for one in threading.enumerate() if one not in threads and not one.name.startswith("decode")]
    assert not left


def test_it_runs_in_an_event_loop_and_in_another_thread(tmp_path: Path) -> None:
    async def main() -> phalanx.Run:
        phalanx.train("digits", settings=SMALL | {"train.length": "1st"}, out=tmp_path / "inside")
        return await asyncio.to_thread(
            phalanx.train, "digits", settings=SMALL | {"train.length": "1st"}, out=tmp_path / "beside"
        )

    assert asyncio.run(main()).finished
    assert phalanx.load(tmp_path / "inside").finished


def test_ctrl_c_saves_and_returns_the_run(tmp_path: Path) -> None:
    out = tmp_path / "run"
    with interrupting(out):
        run = phalanx.train("digits", settings=SMALL, epochs=500, log_every=1, out=out)
    assert (run.finished, run.state) == (False, "stopped")
    stopped_at = run.history("train/loss").steps[-1]
    resumed = run.resume(settings={"train.length": f"{stopped_at + 2}st"})
    assert resumed.finished
    assert resumed.history("train/loss").steps[-1] == stopped_at + 2


def test_sigterm_saves_and_then_takes_effect(tmp_path: Path) -> None:
    out, received = tmp_path / "run", []
    before = signal.signal(signal.SIGTERM, lambda number, frame: received.append(number))
    try:
        with interrupting(out, signal.SIGTERM):
            run = phalanx.train("digits", settings=SMALL, epochs=500, log_every=1, out=out)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert (run.state, received) == ("stopped", [signal.SIGTERM])
    assert weights(run)


def test_one_run_at_a_time_trains_in_a_process(tmp_path: Path) -> None:
    caught: list[phalanx.Error] = []

    def another() -> None:
        while not (tmp_path / "run" / "events.jsonl").exists():
            time.sleep(0.01)
        try:
            phalanx.train("digits")
        except phalanx.Error as error:
            caught.append(error)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=another)
    thread.start()
    phalanx.train("digits", settings=SMALL, epochs=500, out=tmp_path / "run")
    thread.join()
    assert "training already" in caught[0].what


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        ({"epoch": 3}, ["no argument 'epoch'", "epochs"]),
        ({"settings": {"optim.lrr": 1}}, ["no setting 'optim.lrr'", "optim.lr", "settings 'optim.lrr'"]),
        ({"settings": {"optim": {"lrr": 1}}}, ["no setting 'optim.lrr'"]),
        ({"settings": ["optim.lr=1"]}, ["a dictionary"]),
        ({"lr": "high"}, ["optim.lr cannot be 'high'", "lr="]),
        ({"data": Path("nowhere")}, ["nowhere"]),
        ({"at": "3ep"}, ["--resume"]),
        ({"resume": "nowhere"}, ["nowhere is not a run"]),
    ],
)
def test_what_cannot_be_is_an_error(arguments: dict[str, Any], parts: list[str]) -> None:
    with pytest.raises(phalanx.Error) as caught:
        phalanx.train(**arguments)
    assert caught.value.what
    assert caught.value.remedy
    assert all(part in str(caught.value) for part in parts)


def test_python_values_become_settings(tmp_path: Path) -> None:
    from phalanx.api.train import request_of

    given: dict[str, Any] = dict.fromkeys(("settings", "out", "resume", "at", "init_from", "accept_code"))
    given |= {"lr_step_epochs": [30, 60.5], "gpus": [0, 1], "log_dir": tmp_path, "epochs": torch.tensor(3).numpy()[()]}
    request = request_of("train", "digits", given)
    config = request.config
    assert [str(one) for one in config.schedule.milestones] == ["30ep", "60.5ep"]
    assert (config.machine.gpus, config.exchange.workers) == ([0, 1], 2)
    assert (config.train.log_dir, str(config.train.length)) == (str(tmp_path), "3ep")
    assert request.command.startswith("phalanx.train('digits', ")


def test_a_script_that_torchrun_starts_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(phalanx.Error, match="one of 2 processes of torchrun"):
        phalanx.train("digits")
