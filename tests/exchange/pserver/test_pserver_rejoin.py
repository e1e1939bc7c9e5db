"""A worker that was taken for lost and continues: async and ssp take it back, sync tells it why it ends."""

import os
import signal
from multiprocessing.context import ForkServerProcess
from typing import Any

import pytest

from tests.exchange.pserver.pserver_jobs import JobOfProcesses
from tests.waiting import until

LONG, STEPS = 3000.0, 260


def freeze(job: JobOfProcesses, worker: ForkServerProcess) -> None:
    """Stop a worker until all servers have taken it for lost."""
    os.kill(worker.pid or 0, signal.SIGSTOP)
    numbers = range(job.num_servers)
    until(lambda: all(any(line["kind"] == "lost" for line in job.log(number)) for number in numbers), 60)


def thaw(worker: ForkServerProcess) -> None:
    os.kill(worker.pid or 0, signal.SIGCONT)


@pytest.mark.parametrize(("mode", "rank", "remote"), [("async", 1, True), ("ssp:2", 1, False), ("async", 0, False)])
@pytest.mark.parametrize("job", [(2, 2, "tcp", 3.0)], indirect=True)
def test_a_frozen_worker_joins_again_at_the_step_of_the_others(
    job: JobOfProcesses, mode: str, rank: int, remote: bool
) -> None:
    settings: dict[str, Any] = {"mode": mode, "remote": remote, "timeout_s": LONG, "pause_s": 0.05, "steps": STEPS}
    workers = [job.start_worker(number, **settings) for number in range(2)]
    name, other = f"trainer-{rank}", f"trainer-{1 - rank}"
    until(lambda: min(len(job.steps(f"trainer-{number}")) for number in range(2)) > 5)
    freeze(job, workers[rank])
    froze_at, reached = job.steps(name)[-1], job.steps(other)[-1]
    until(lambda: job.steps(other)[-1] > reached + 20)
    reached = job.steps(other)[-1]
    thaw(workers[rank])
    until(lambda: any("rejoined" in line for line in job.lines(name)), 60)
    back = next(line for line in job.lines(name) if "rejoined" in line)
    assert back["rejoined"] >= reached
    said = f"{name} was taken for lost after 3 s of silence; it joined again at step {back['rejoined']}"
    assert back["text"].startswith(said)
    job.join(120)
    assert [process.exitcode for process in [*workers, *job.servers]] == [0, 0, 0, 0]
    assert job.steps(other) == list(range(STEPS))
    steps = job.steps(name)
    before = steps.index(back["rejoined"])  # a step may have been made, and not been written down yet
    assert before - 1 in (froze_at, froze_at + 1)
    assert steps == [*range(before), *range(back["rejoined"], STEPS)]
    for number in range(2):
        assert job.lines(f"trainer-{number}")[-1]["counted"] == [2.0, 1.0]  # both are there at the end
    joins = [line for line in job.log(0) if line["kind"] == "join" and line["rejoined"]]
    assert [line["worker"] for line in joins] == [rank]


@pytest.mark.parametrize("job", [(2, 2, "tcp", 3.0)], indirect=True)
def test_a_frozen_worker_whose_place_was_taken_ends_and_leaves_the_other_alone(job: JobOfProcesses) -> None:
    settings: dict[str, Any] = {"mode": "async", "remote": True, "timeout_s": LONG, "pause_s": 0.05, "steps": STEPS}
    job.start_worker(0, **settings)
    frozen = job.start_worker(1, **settings)
    until(lambda: len(job.steps("trainer-1")) > 5)
    freeze(job, frozen)
    again = job.start_worker(1, "again", **settings)
    until(lambda: len(job.steps("again")) > 5)
    thaw(frozen)
    frozen.join(60)
    said = job.lines("trainer-1")[-1]["error"]
    assert "trainer-1 was taken for lost after 3 s of silence, and its place was taken" in said
    job.join(120)
    assert again.exitcode == 0
    steps = job.steps("again")
    assert steps == list(range(steps[0], STEPS))  # it was not disturbed
    assert sum(line["kind"] == "join" for line in job.log(0)) == 3


@pytest.mark.parametrize("job", [(1, 2, "tcp", 3.0)], indirect=True)
def test_a_frozen_worker_of_a_sync_job_says_that_it_was_taken_for_lost(job: JobOfProcesses) -> None:
    """Not that the server has ended, which it has because of this worker."""
    job.start_worker(0, timeout_s=LONG, remote=True, steps=100_000)
    frozen = job.start_worker(1, timeout_s=LONG, remote=True, steps=100_000)
    until(lambda: len(job.steps("trainer-1")) > 3)
    os.kill(frozen.pid or 0, signal.SIGSTOP)
    for process in (job.workers[0], job.servers[0]):
        process.join(60)
        assert process.exitcode is not None
    thaw(frozen)
    frozen.join(60)
    said = job.lines("trainer-1")[-1]["error"]
    assert said.startswith("trainer-1 was taken for lost after 3 s of silence")
    assert "it stood still for" in said
