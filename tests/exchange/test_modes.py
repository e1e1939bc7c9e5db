"""Going distributed does not change what is learned, and a job ends as one. Real processes throughout."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from phalanx.runs import checkpoint
from phalanx.runs.events import read_events
from tests.conftest import LEAN
from tests.waiting import until

# 360 training digits would divide by too much; 1,442 do not divide by 96, and the last batch is uneven over 4.
SMALL = ["digits", "model.name=wrn10_1", "train.length=2ep", "checkpoint.every=5st", "train.log_every=5"]
SMALL += ["optim.lr=0.05", "schedule.warmup=4st", *LEAN, "--global-batch-size", "96"]


def command(out: Path, *settings: str) -> list[str]:
    return [sys.executable, "-m", "phalanx", "train", *SMALL, *settings, "--out", str(out)]


def train(out: Path, *settings: str) -> str:
    done = subprocess.run(command(out, *settings), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def resume(out: Path, *settings: str) -> str:
    again = [sys.executable, "-m", "phalanx", "train", "--resume", str(out), *settings]
    done = subprocess.run(again, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def weights(out: Path) -> dict[str, torch.Tensor]:
    return checkpoint.load_newest(out / "checkpoints")[0].tensors["model"]


def largest_relative_difference(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> float:
    assert one.keys() == other.keys()
    learned = [name for name in one if "running" not in name and "num_batches" not in name]
    return max(float((one[name] - other[name]).norm() / one[name].norm().clamp_min(1e-12)) for name in learned)


def processes_of(out: Path) -> list[int]:
    """Processes with this run's folder in their command line or environment."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
                told = (entry / "environ").read_bytes().split(b"\0")
                state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
            except OSError:
                continue
            if (str(out).encode() in words or f"PHALANX_RUN={out}".encode() in told) and state != "Z":
                found.append(int(entry.name))
    return found


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("local") / "run"
    train(out)
    return out


ONE_WORKER = [["collective"], ["pserver", "--servers", "3"]]


@pytest.mark.numeric
@pytest.mark.parametrize("method", ONE_WORKER, ids=" ".join)
def test_one_worker_is_local_bit_for_bit(local: Path, tmp_path: Path, method: list[str]) -> None:
    train(tmp_path / "run", "--update-method", *method)
    one, other = weights(local), weights(tmp_path / "run")
    assert all(torch.equal(tensor, other[name]) for name, tensor in one.items())
    saved = checkpoint.load_newest(tmp_path / "run" / "checkpoints")[0].tensors["optimizer"]
    for name, tensor in checkpoint.load_newest(local / "checkpoints")[0].tensors["optimizer"].items():
        assert torch.equal(tensor, saved[name])


@pytest.mark.numeric
@pytest.mark.parametrize(("workers", "method"), [(4, "collective"), (2, "pserver")])
def test_workers_are_accumulated_micro_batches(tmp_path: Path, workers: int, method: str) -> None:
    # 101 samples in batches of 24: the last of an epoch has five, so that of four workers two have none. The rate is
    # small because training amplifies rounding: at 0.05 the difference grows threefold a step, whoever adds.
    odd = ["data.source=synthetic", "data.synthetic={samples: 101, val_samples: 35, classes: 7, size: 16, channels: 1}"]
    odd += ["train.length=2ep", "optim.lr=0.005", "--global-batch-size", "24", "train.log_every=3"]
    train(tmp_path / "local", *odd, f"optim.accumulate={workers}")
    train(tmp_path / "many", *odd, "--update-method", method, "--workers", str(workers), "--servers", "2")
    assert largest_relative_difference(weights(tmp_path / "local"), weights(tmp_path / "many")) < 1e-5
    events = read_events(tmp_path / "many")
    assert {len(record["ranks"]) for record in events if record["kind"] == "step"} == {workers}
    assert [record["samples"] for record in events if record["kind"] == "epoch"] == [101, 101]
    assert {record["samples"] for record in events if record["kind"] == "eval"} == {35}
    assert (tmp_path / "many" / "logs" / "trainer-1.log").stat().st_size > 0


def test_warm_up_from_one_workers_rate_is_the_same_wherever_it_runs(tmp_path: Path) -> None:
    """Two workers, on trainers or on servers, one with two micro-batches, and one that takes over in mid warm-up."""
    slow = ["schedule.warmup=8st", "schedule.warmup_start=one-worker", "optim.lr_per=48", "train.log_every=1"]
    slow += ["train.length=10st", "schedule.kind=constant", "checkpoint.every=1st", "checkpoint.keep_last=9"]
    modes = {
        "local": ["optim.accumulate=2"],
        "collective": ["--workers", "2"],
        "pserver": ["--workers", "2", "--update-method", "pserver", "--servers", "2"],
    }
    for name, words in modes.items():
        train(tmp_path / name, *slow, *words)
        assert "peak rate 0.1 (warm-up from 0.05)" in (tmp_path / name / "log.txt").read_text()
    for name in ("collective", "pserver"):
        resume(tmp_path / name, "--at", "3st", "--workers", "1")
    expected = [0.05 + 0.05 * min(step, 8) / 8 for step in range(10)]
    for name in modes:
        rates = [record["lr"] for record in read_events(tmp_path / name) if record["kind"] == "step"]
        assert rates == pytest.approx(expected, rel=1e-12), name
    assert largest_relative_difference(weights(tmp_path / "local"), weights(tmp_path / "pserver")) < 1e-3


@pytest.mark.numeric
def test_a_checkpoint_does_not_care_which_mode_wrote_it(tmp_path: Path) -> None:
    """Half of a run in each of three modes, one worker each: the same as all of it in one."""
    out = tmp_path / "run"
    train(out, "train.length=20st", "schedule.kind=constant", "--update-method", "pserver", "--servers", "2")
    resume = [sys.executable, "-m", "phalanx", "train", "--resume", str(out), "--servers", "1", "--update-method"]
    for method, length in (("local", 25), ("pserver", 32)):
        done = subprocess.run(
            [*resume, method, f"train.length={length}st"], capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, done.stdout + done.stderr
    train(tmp_path / "whole", "train.length=32st", "schedule.kind=constant")
    one, other = weights(tmp_path / "whole"), weights(out)
    assert all(torch.equal(tensor, other[name]) for name, tensor in one.items())


def test_a_killed_async_worker_comes_back_while_the_others_go_on(tmp_path: Path) -> None:
    """In a run that goes on: what the job has settled is in the run's file by then, and not what was asked for."""
    out = tmp_path / "run"
    train(out, "train.length=5st")
    again = [sys.executable, "-m", "phalanx", "train", "--resume", str(out), "machine.channels_last=false"]
    asynchronous = ["--update-method", "pserver", "--mode", "async", "--workers", "3", "train.length=2000ep"]
    process = subprocess.Popen(
        [*again, *asynchronous, "eval.every=100%"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    until(lambda: (out / "log.txt").exists() and "step 20:" in (out / "log.txt").read_text())
    victim = next(pid for pid in processes_of(out) if b"PHALANX_NAME=trainer-2\0" in environ(pid))
    os.kill(victim, signal.SIGKILL)
    until(lambda: '"rejoined": true' in (out / "logs" / "server-0.jsonl").read_text())
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=300)
    assert process.returncode == 130, said
    assert "trainer-2 on localhost was killed by SIGKILL; restarting it, the others continue" in said
    assert not processes_of(out)
    step = checkpoint.load_newest(out / "checkpoints")[0].state["training"]["step"]
    assert f"resumed at step {step}" in resume(out, f"train.length={step + 6}st")


def environ(pid: int) -> bytes:
    return Path(f"/proc/{pid}/environ").read_bytes()


@pytest.mark.parametrize("method", ["collective", "pserver"])
def test_compressed_gradients_still_learn_and_resume(tmp_path: Path, method: str) -> None:
    out = tmp_path / "run"
    train(out, "--update-method", method, "--workers", "2", "--compress", "2bit", "train.length=4ep", "optim.lr=0.1")
    steps = [record for record in read_events(out) if record["kind"] == "step"]
    assert steps[-1]["loss"] < steps[0]["loss"]
    plain = 4 * sum(tensor.numel() for name, tensor in weights(out).items() if "running" not in name)
    assert 0 < steps[-1]["bytes_sent"] < plain / 8  # 1/16, and headers: this model is small
    assert 8 < steps[-1]["compression_ratio"] <= 16
    saved = checkpoint.load_newest(out / "checkpoints")[0].tensors["residuals"]
    assert {key.split("/")[0] for key in saved} == {"0", "1"}
    assert "resumed at step" in resume(out, "train.length=5ep")


def test_torchrun_is_recognised(tmp_path: Path) -> None:
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    run = [*torchrun, "-m", "phalanx", "train", *SMALL, "train.length=6st", "--out", str(tmp_path / "run")]
    done = subprocess.run(run, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    last = [record for record in read_events(tmp_path / "run") if record["kind"] == "step"][-1]
    assert len(last["ranks"]) == 2


def test_a_killed_launcher_ends_the_whole_job_and_resume_goes_on(tmp_path: Path) -> None:
    out = tmp_path / "run"
    process = subprocess.Popen(
        command(out, "--update-method", "collective", "--workers", "2", "train.length=2000ep"),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    until(lambda: checkpoint.latest_path(out / "checkpoints") is not None)
    workers = [pid for pid in processes_of(out) if pid != process.pid]
    assert len(workers) == 2
    process.kill()
    process.communicate(timeout=180)
    until(lambda: not processes_of(out))
    newest = checkpoint.load_newest(out / "checkpoints")[0].state["training"]["step"]
    assert f"resumed at step {newest}" in resume(out, f"train.length={newest + 5}st")


def test_ctrl_c_saves_once_and_the_resumed_job_equals_the_undisturbed(tmp_path: Path) -> None:
    two = ["--update-method", "collective", "--workers", "2"]
    train(tmp_path / "whole", *two)
    out = tmp_path / "run"
    process = subprocess.Popen(command(out, *two, "checkpoint.every=100%"), stdout=subprocess.PIPE, text=True)
    until(lambda: (out / "log.txt").exists() and "step 5:" in (out / "log.txt").read_text())
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=180)
    assert process.returncode == 130
    assert "--resume" in said
    assert not processes_of(out)
    resume(out)
    assert largest_relative_difference(weights(tmp_path / "whole"), weights(out)) == 0


def test_a_batch_that_does_not_divide_is_refused(tmp_path: Path) -> None:
    done = subprocess.run(command(tmp_path / "run", "--workers", "5"), capture_output=True, text=True, timeout=300)
    assert done.returncode == 2
    assert "try 95 or 100" in done.stdout + done.stderr
