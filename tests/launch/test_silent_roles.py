"""Roles that are stopped, or have no memory left: the job goes on or ends, and the message names them."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from phalanx.launch.record import load_record
from phalanx.runs.events import read_events
from tests.conftest import LEAN
from tests.launch.memory_groups import memory_group
from tests.waiting import until

SETTINGS = ["digits", "model.name=wrn10_1", "train.log_every=1", "eval.every=100%", "checkpoint.every=100%", *LEAN]
ENDLESS = ["train.length=1000000st", "exchange.timeout_s=3000"]
STOPPED = "is stopped (by SIGSTOP or Ctrl-Z; SIGCONT continues it)"

# A callback that takes memory, on the second worker.
GREEDY = """
import torch

class Greedy:
    every_rank = True

    def __init__(self):
        self.kept = []

    def on_step(self, run, numbers):
        if run.rank == 1 and run.step >= 3:
            self.kept.append({take})
"""


def job(out: Path, *words: str, prefix: list[str] | None = None) -> "subprocess.Popen[str]":
    command = [*(prefix or []), sys.executable, "-m", "phalanx", "train", *SETTINGS, *words, "--out", str(out)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


@pytest.fixture
def out(tmp_path: Path) -> Iterator[Path]:
    """A run folder whose processes do not outlive the test."""
    yield tmp_path / "run"
    with suppress(Exception):
        os.kill(load_record(tmp_path / "run").pid, signal.SIGKILL)


def steps(out: Path) -> int:
    records = read_events(out) if (out / "events.jsonl").exists() else []
    return max((record["step"] for record in records if record["kind"] == "step"), default=0)


def stop(out: Path, process: "subprocess.Popen[str]", role: str) -> int:
    """Send SIGSTOP to a role, once the job trains. Returns its pid."""
    until(lambda: steps(out) >= 3 or process.poll() is not None)
    assert process.poll() is None, process.communicate()[0]

    def pids() -> list[int]:
        """Its pid, once the launcher has written it down."""
        found = load_record(out).roles if (out / "job.json").exists() else ()
        return [one.pid for one in found if one.name == role and one.pid is not None]

    until(pids)
    (pid,) = pids()
    os.kill(pid, signal.SIGSTOP)
    return pid


def ended(process: "subprocess.Popen[str]") -> str:
    return process.communicate(timeout=300)[0]


@pytest.mark.parametrize(
    ("words", "role"),
    [
        (["--workers", "2"], "trainer-1"),
        (["--workers", "2"], "trainer-0"),
        (["--workers", "2", "--servers", "1", "--update-method", "pserver"], "server-0"),
        (["--workers", "2", "--servers", "1", "--update-method", "pserver"], "trainer-1"),
        (["--workers", "2", "--servers", "1", "--update-method", "pserver", "--mode", "async"], "server-0"),
    ],
    ids=["collective", "collective first", "sync server", "sync worker", "async server"],
)
def test_a_stopped_role_is_named_and_ends_the_job(out: Path, words: list[str], role: str) -> None:
    process = job(out, *words, *ENDLESS, "exchange.silence_s=4")
    stop(out, process, role)
    said = ended(process)
    assert process.returncode == 1, said
    assert f"{role} on localhost {STOPPED}; the job ends" in said
    assert load_record(out).cause == f"{role} on localhost {STOPPED}"


def test_a_stopped_worker_is_replaced_in_an_elastic_job(out: Path) -> None:
    words = ["--workers", "2", "--max-restarts", "1", "train.length=60st", "exchange.silence_s=4"]
    process = job(out, *words)
    pid = stop(out, process, "trainer-1")
    said = ended(process)
    assert process.returncode == 0, said
    assert f"trainer-1 on localhost {STOPPED}; restarting as a new group with 2 workers" in said
    assert not Path(f"/proc/{pid}").exists()
    assert steps(out) == 60


def test_a_stopped_async_worker_joins_again_and_the_job_does_not_take_it_for_a_failure(out: Path) -> None:
    pserver = ["--workers", "2", "--servers", "1", "--update-method", "pserver", "--mode", "async"]
    process = job(out, *pserver, *ENDLESS, "exchange.silence_s=4")
    pid = stop(out, process, "trainer-1")
    journal, log = out / "logs" / "server-0.jsonl", out / "logs" / "trainer-1.log"
    until(lambda: '"lost"' in journal.read_text())
    reached = steps(out)
    until(lambda: steps(out) > reached + 5)
    os.kill(pid, signal.SIGCONT)
    until(lambda: "it joined again at step" in log.read_text())
    line = next(line for line in log.read_text().splitlines() if "joined again" in line)
    assert "trainer-1 was taken for lost after 4 s of silence; it joined again at step " in line
    until(lambda: "step" in log.read_text().partition("joined again at step")[2])  # it makes steps
    process.send_signal(signal.SIGINT)
    said = ended(process)
    assert process.returncode == 130, said
    assert {role.name: role.starts for role in load_record(out).roles} == {
        "server-0": 1,
        "trainer-0": 1,
        "trainer-1": 1,
    }


def greedy(folder: Path, take: str) -> str:
    (folder / "greedy.py").write_text(GREEDY.format(take=take))
    return f"callbacks=[{folder / 'greedy.py'}:Greedy]"


@pytest.mark.parametrize("method", ["collective", "pserver"])
def test_a_failed_allocation_is_blamed_on_its_trainer(out: Path, tmp_path: Path, method: str) -> None:
    callback = greedy(tmp_path, "torch.empty(1 << 50)")
    process = job(out, "--workers", "2", "--update-method", method, callback, *ENDLESS)
    said = ended(process)
    assert process.returncode == 2, said
    name = os.uname().nodename
    assert f"trainer-1 on localhost ended with code 2: trainer-1 on {name} is out of memory; the job ends" in said
    assert "you tried to allocate 4503599627370496 bytes" in said
    assert "smaller micro-batches: train.batch_size=32 optim.accumulate=2" in said


def test_an_address_space_limit_is_told(out: Path, tmp_path: Path) -> None:
    """As with ulimit -v, which batch systems set."""
    limit = 8 << 20  # kB: torch alone maps some GB; more than the limit may be too much for the machine
    callback = greedy(tmp_path, "torch.zeros(1 << 28)")
    process = job(
        out, "--workers", "2", callback, *ENDLESS, prefix=["sh", "-c", f'ulimit -v {limit} && exec "$@"', "sh"]
    )
    said = ended(process)
    assert process.returncode == 2, said
    assert "is out of memory; the job ends" in said
    assert "this process may have 8,192 MB (ulimit -v)" in said


def test_the_kernel_ends_a_worker_whose_cgroup_has_no_memory_left(out: Path, tmp_path: Path) -> None:
    callback = greedy(tmp_path, "torch.ones(16 << 20)")  # 64 MB a step
    with memory_group(2048) as group:
        enter = ["sh", "-c", f'echo $$ > {group}/cgroup.procs && exec "$@"', "sh"]
        process = job(out, "--workers", "2", callback, *ENDLESS, "exchange.silence_s=6", prefix=enter)
        said = ended(process)
        assert process.returncode == 1, said
        assert "trainer-1 on localhost was killed by SIGKILL: the kernel's OOM killer ran on " in said
        assert "oom_kill 0 → 1, memory limit 2,048 MB); the job ends" in said
