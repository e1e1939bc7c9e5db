"""A job on a real Slurm of two nodes: submitted, requeued and resumed, cancelled."""

import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from phalanx.launch.record import load_record
from phalanx.runs import checkpoint
from tests.conftest import LEAN, train_digits
from tests.lab.hosts import hosts_up
from tests.lab.slurm import Slurm, slurm_up
from tests.waiting import until

SETTINGS = ["digits", "model.name=wrn10_1", "train.length=400ep", *LEAN, "train.log_every=2"]
SETTINGS += ["--global-batch-size", "96", "checkpoint.every=100%", "eval.every=100%"]
LAUNCH = [sys.executable, "-m", "phalanx", "launch", "-n", "2", "--launcher", "slurm", "--nodes", "2"]
_CREDENTIAL_S = 2.5  # Slurm refuses to start a job anew within the second in which it ended it


@pytest.fixture(scope="module")
def slurm() -> Iterator[Slurm]:
    """One cluster of two nodes; each test leaves it without a job."""
    with hosts_up(2) as lab, slurm_up(lab) as up:
        yield up


@pytest.mark.lab
def test_a_job_is_queued_again_resumes_and_is_cancelled(slurm: Slurm, tmp_path: Path) -> None:
    run = tmp_path / "a run"
    following = slurm.start([*LAUNCH, "--", "train", *SETTINGS, "--out", str(run)], cwd=tmp_path)
    until(lambda: "step 4:" in text(run / "log.txt"), why=lambda: text(run / "logs/batch.log"))
    job = json.loads((run / "batch.json").read_text())["job"]

    # What Slurm does a minute before the time limit.
    slurm.run(["scancel", "--signal=USR1", "--batch", job])
    until(lambda: slurm.state(job) == "PENDING", why=lambda: text(run / "logs/batch.log"))
    seen = slurm.run([sys.executable, "-m", "phalanx", "status", str(run)]).stdout
    assert f"slurm: job {job} is waiting: BeginTime" in seen
    saved = newest(run)
    assert saved >= 4
    time.sleep(_CREDENTIAL_S)
    slurm.run(["scontrol", "update", f"JobId={job}", "StartTime=now"])  # by itself it waits two minutes
    resumed = f"resumed at step {saved} from"
    until(lambda: resumed in text(run / "log.txt"), why=lambda: text(run / "logs/batch.log"))
    until(lambda: f"step {saved + 3}:" in text(run / "log.txt") or f"step {saved + 4}:" in text(run / "log.txt"))

    os.kill(slurm.lab.inner(following), signal.SIGINT)
    said, _ = following.communicate(timeout=180)
    assert following.returncode == 130
    assert slurm.state(job) == "CANCELLED"
    assert newest(run) > saved
    assert not slurm.lab.processes(str(run)), "something of the job is left"
    assert_followed(said, job, slurm)


@pytest.mark.lab
def test_a_job_goes_on_from_the_checkpoint_that_is_asked_for(slurm: Slurm, tmp_path: Path) -> None:
    settings = ["model.name=wrn10_1", *LEAN, "train.length=8st", "checkpoint.every=2st", "checkpoint.keep_last=9"]
    run = train_digits(tmp_path / "run", *settings)
    back = [*LAUNCH, "--", "train", "--resume", str(run), "--at"]
    refused = slurm.run([*back, "3st"], cwd=tmp_path, check=False)
    assert refused.returncode == 2
    assert "no checkpoint of step 3" in refused.stderr
    assert not (run / "batch.json").exists()
    done = slurm.run([*back, "4st"], cwd=tmp_path, check=False)
    assert done.returncode == 0, text(run / "logs/batch.log") + slurm.logs()
    assert "resumed at step 4 from" in text(run / "log.txt")
    (aside,) = (run / "checkpoints").glob("after-step-00000004-*")
    assert [path.name for path in checkpoint.steps_saved(aside)] == ["step-00000006", "step-00000008"]
    assert newest(run) == 8


@pytest.mark.lab
def test_an_evaluator_on_the_last_node_ends_well(slurm: Slurm, tmp_path: Path) -> None:
    """Roles under Slurm ignore SIGTERM: helpers are stopped by another signal, and none is killed."""
    run = tmp_path / "run"
    train = ["digits", "model.name=wrn10_1", "train.length=4st", *LEAN, "--data-servers", "1", "--out", str(run)]
    words = ["-n", "1", "--launcher", "slurm", "--nodes", "2", "--evaluator-on", "last"]
    said = slurm.run([*LAUNCH[:4], *words, "--", "train", *train], cwd=tmp_path)
    until(lambda: not slurm.lab.processes(str(run)))
    roles = {role.name: (role.host, role.state, role.code) for role in load_record(run).roles}
    assert roles == {
        "data-0": ("h1", "ended", 0),
        "trainer-0": ("h1", "ended", 0),
        "evaluator-0": ("h2", "ended", 0),
    }
    assert "job finished in" in said.stdout
    assert "SIG" not in said.stdout + text(run / "logs" / "evaluator-0.log")
    assert "validation at step 4" in text(run / "logs" / "evaluator-0.log")


@pytest.mark.lab
def test_tasks_of_srun_speak_where_each_has_a_file(slurm: Slurm, tmp_path: Path) -> None:
    train = [sys.executable, "-m", "phalanx", "train", "digits", "model.name=wrn10_1", "train.length=2st", *LEAN]
    for out, option in (("one", "--output=one.txt"), ("own", "--output=own.%t")):
        slurm.run(["srun", "-N2", "-n2", option, *train, "train.log_every=2", "--out", out], cwd=tmp_path)
    assert "run: digits" in text(tmp_path / "one.txt")
    assert "trainer-1" not in text(tmp_path / "one.txt")
    assert "worker: trainer-1 of 2 on h2" in text(tmp_path / "own.1")
    for rank in range(2):
        assert text(tmp_path / f"own.{rank}").count("this worker ") == 1


def assert_followed(said: str, job: str, slurm: Slurm) -> None:
    """The output of the submitting command: the states of the job in the queue, and its log."""
    assert f"submitted job {job}: " in said
    assert f"job {job} is running: h[1-2]" in said
    assert "requeueing the job" in said
    assert f"job {job} is waiting: BeginTime" in said
    assert "trainer-0@h1 | " in said
    assert f"job {job} has ended: CANCELLED" in said, slurm.logs()


def text(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def newest(run: Path) -> int:
    """The step of the newest checkpoint."""
    step: int = checkpoint.load_newest(run / "checkpoints")[0].state["training"]["step"]
    return step
