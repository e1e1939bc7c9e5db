"""kill -9 at a random step: the job goes on, and nothing of it shows in what was learnt. Real processes."""

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from phalanx.runs import checkpoint
from phalanx.runs.events import read_events
from phalanx.runs.used_samples import samples_used
from tests.conftest import LEAN, train_digits
from tests.exchange.test_modes import processes_of
from tests.lab.hosts import Lab
from tests.waiting import until

# 1,442 digits in steps of 99: the last step of an epoch is uneven over three workers. With batch norm, mixing and
# dropout: were micro-batches cut in another way, the weights would tell. At this constant rate, one step more or less
# moves them by 3e-4 and the momentum by 0.17. Rounding alone moves them by 1e-8, until it takes an activation to the
# other side of a relu, which it does in one run of some: then by 5e-6, and the momentum by 3e-3.
SETTINGS = ["model.name=wrn10_1", "model.drop=0.1", "augment.mixup=0.2", "optim.ema=0.9", "optim.lr=0.002"]
SETTINGS += ["schedule.kind=constant", "train.length=2ep", "train.global_batch_size=99", "train.log_every=1"]
SETTINGS += ["checkpoint.every=4st", "eval.every=1ep", *LEAN]
STEPS = 30


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same training in one process: three workers are three micro-batches."""
    return train_digits(tmp_path_factory.mktemp("whole") / "run", *SETTINGS, "train.micro_batches=3")


def start(*words: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "phalanx", "train", *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def kill(out: Path, process: subprocess.Popen[str], name: str, step: int, resumes: int = 0) -> None:
    """End a role by force, once the run was resumed so many times and has done so many steps."""
    end_one(lambda: [pid for pid in processes_of(out) if is_role(pid, name)], out, process, step, resumes)


def end_one(
    find: Callable[[], list[int]], out: Path, process: subprocess.Popen[str], step: int, resumes: int = 0
) -> None:
    """The same with whatever process is found."""
    found: list[int] = []

    def there() -> bool:
        records = read_events(out) if (out / "events.jsonl").exists() else []
        steps = [record["step"] for record in records if record["kind"] == "step"]
        if max(steps, default=0) >= step and sum(record["kind"] == "resume" for record in records) == resumes:
            found[:] = find()
        return bool(found) or process.poll() is not None

    until(there)
    assert process.poll() is None, process.communicate()[0]
    os.kill(found[0], signal.SIGKILL)


def steps(out: Path) -> int:
    records = read_events(out) if (out / "events.jsonl").exists() else []
    return max((record["step"] for record in records if record["kind"] == "step"), default=0)


def is_role(pid: int, name: str) -> bool:
    return f"PHALANX_NAME={name}".encode() in environment(pid)


def environment(pid: int) -> set[bytes]:
    try:
        return set(Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"))
    except OSError:  # it has just ended
        return set()


def assert_as_undisturbed(out: Path, undisturbed: Path) -> None:
    """Every sample of every epoch was used exactly once, and what came of it is the same."""
    records = read_events(out)
    used = samples_used(records)
    assert sorted(used) == [1, 2]
    assert all(len(times) == 1442 and (times == 1).all() for times in used.values())
    assert [record["samples"] for record in records if record["kind"] == "epoch"] == [1442, 1442]
    steps = {record["step"]: record for record in records if record["kind"] == "step"}
    for record in read_events(undisturbed):
        if record["kind"] == "step":
            found = steps.pop(record["step"], record)  # one that was made, and not told before the loss, joins the next
            assert found["lr"] == record["lr"]
            if len(found["used"]) == 1 and found["used"] == record["used"]:
                assert found["loss"] == pytest.approx(record["loss"], rel=1e-4)
    assert not steps
    expected, saved = (checkpoint.load_newest(run / "checkpoints")[0].tensors for run in (undisturbed, out))
    for group, allowed in (("model", 5e-5), ("ema", 5e-5), ("optimizer", 2e-2)):
        assert difference(expected[group], saved[group]) < allowed, group


def difference(one: dict[str, Tensor], other: dict[str, Tensor]) -> float:
    """Of all that is learnt, relative. Batch norm's statistics are not: each worker has its own of its own samples."""
    assert one.keys() == other.keys()
    names = [name for name in one if "running" not in name and "num_batches" not in name]
    flat, there = (torch.cat([tensors[name].double().flatten() for name in names]) for tensors in (one, other))
    return float((flat - there).norm() / flat.norm())


def test_a_killed_worker_is_replaced_and_a_killed_evaluator_too(undisturbed: Path, tmp_path: Path) -> None:
    out, rank, step = tmp_path / "run", random.randrange(3), random.randrange(1, 24)
    process = start("digits", *SETTINGS, "--workers", "3", "--max-restarts", "1", "--evaluator", "--out", str(out))
    kill(out, process, f"trainer-{rank}", step)
    kill(out, process, "evaluator-0", step, resumes=1)
    said, _ = process.communicate(timeout=300)
    assert process.returncode == 0, f"trainer {rank}, step {step}: {said}"
    assert f"trainer-{rank} on localhost was killed by SIGKILL; restarting as a new group with 3 workers" in said
    assert "evaluator-0 on localhost was killed by SIGKILL; restarting it, the others continue" in said
    assert not processes_of(out)
    resumed = [record["step"] for record in read_events(out) if record["kind"] == "resume"]
    assert len(resumed) == 1
    assert resumed[0] >= step - 1  # not at a checkpoint of every fourth step, but where it was lost
    assert_as_undisturbed(out, undisturbed)

    evaluated = [record["step"] for record in read_events(out) if record["kind"] == "eval"]
    assert evaluated == sorted({*range(4, STEPS, 4), 15, STEPS, *resumed})  # each checkpoint, once
    assert json.loads((out / "summary.json").read_text())["last"]["step"] == STEPS


def test_lost_workers_and_servers_one_after_the_other(undisturbed: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    pserver = ["--update-method", "pserver", "--workers", "2", "train.micro_batches=3", "--max-restarts", "1"]
    process = start("digits", *SETTINGS, *pserver, "--out", str(out))
    kill(out, process, f"trainer-{random.randrange(2)}", random.randrange(1, 5))
    kill(out, process, "server-0", 9, resumes=1)
    said, _ = process.communicate(timeout=300)
    assert process.returncode == 1, said
    assert "restarting as a new group with 2 workers" in said
    assert "server-0 on localhost was killed by SIGKILL; the job ends" in said
    assert f"phalanx train --resume {out}" in said
    until(lambda: not processes_of(out))

    rank, elastic = random.randrange(3), ["--max-restarts", "0", "--min-workers", "2"]
    process = start("--resume", str(out), "--workers", "3", "--update-method", "collective", *elastic)
    kill(out, process, f"trainer-{rank}", random.randrange(12, 24), resumes=2)
    said, _ = process.communicate(timeout=300)
    assert process.returncode == 0, f"trainer {rank}: {said}"
    assert f"trainer-{rank} on localhost was killed by SIGKILL; restarting as a new group with 2 of 3 workers" in said
    assert "99 samples a step = 33 a micro-batch × 3, shared by 2 workers" in said
    assert_as_undisturbed(out, undisturbed)


def test_validation_is_whole_without_a_lost_worker(tmp_path: Path) -> None:
    """In async mode the others go on without it: the first one evaluates what would have been its part."""
    out, elastic = tmp_path / "run", ["--max-restarts", "0", "--min-workers", "1"]
    pserver = ["--update-method", "pserver", "--workers", "2", "--mode", "async", "train.length=20ep", *elastic]
    process = start("digits", *SETTINGS, "eval.every=100%", "train.global_batch_size=96", *pserver, "--out", str(out))
    kill(out, process, "trainer-1", 3)
    said, _ = process.communicate(timeout=300)
    assert process.returncode == 0, said
    assert "the others continue without it" in said
    assert [record["samples"] for record in read_events(out) if record["kind"] == "eval"] == [355]


@pytest.mark.lab
def test_hosts_that_share_no_disk(lab: Lab, undisturbed: Path) -> None:
    """Survivors save where they stand, each on its own host; what is the newest of that reaches all of them."""
    rank, step = random.randrange(3), random.randrange(1, 12)
    command = [*lab.launch, "-n", "3"]
    command += ["--ips", "h2,h3,h4", "--max-restarts", "1", "--min-workers", "2"]
    process = lab.start("h1", [*command, "--", "train", "digits", *SETTINGS, "--out", "elastic"], cwd=lab.own)
    out = lab.own_of("h2") / "elastic"

    def trainer() -> list[int]:
        return [one.pid for one in lab.processes("elastic") if is_role(one.pid, f"trainer-{rank}")]

    def agent() -> list[int]:
        return [one.pid for one in lab.processes("agent") if one.host == "h4" and one.words[-1] == "agent"]

    end_one(trainer, out, process, step)
    end_one(agent, out, process, 16, resumes=1)
    said, _ = process.communicate(timeout=300)
    assert process.returncode == 0, f"trainer {rank}, step {step}: {said}"
    assert f"trainer-{rank} on h{rank + 2} was killed by SIGKILL; restarting as a new group with 3 workers" in said
    assert "trainer-2 on h4 was lost with its host" in said
    assert "restarting as a new group with 2 of 3 workers" in said
    assert not lab.processes("PHALANX_JOB")
    resumed = [record["step"] for record in read_events(out) if record["kind"] == "resume"]
    assert resumed[0] >= step - 1  # where it was lost, also if that is only known on other hosts than the first
    assert_as_undisturbed(out, undisturbed)


@pytest.mark.lab
def test_survivors_of_a_silent_host_save_where_they_stand(lab: Lab) -> None:
    """They notice by themselves, before the launcher's patience with them ends; no checkpoint was due until then."""
    command = [*lab.launch, "-n", "3"]
    command += ["--ips", "h2,h3,h4", "--max-restarts", "1", "--min-workers", "2", "--", "train", "digits", *SETTINGS]
    command += ["train.length=6ep", "checkpoint.every=100%", "eval.every=100%", "train.micro_batches=3"]
    process = lab.start("h1", [*command, "exchange.silence_s=15", "--out", "silent"], cwd=lab.own)
    out = lab.own_of("h2") / "silent"
    try:
        until(lambda: process.poll() is not None or steps(out) >= 5)
        lab.cut("h4")
        said, _ = process.communicate(timeout=300)
    finally:
        lab.mend("h4")
    assert process.returncode == 0, said
    assert "trainer-2 on h4 was lost with its host" in said
    resumed = [record["step"] for record in read_events(out) if record["kind"] == "resume"]
    assert len(resumed) == 1
    assert resumed[0] >= 5
