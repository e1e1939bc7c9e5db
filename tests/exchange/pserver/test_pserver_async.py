"""async and ssp: no worker waits more than agreed, workers die and come back, nothing is lost or counted twice."""

import os
import signal
import time

import pytest
import torch

from phalanx.exchange.pserver.servers import declare_lost
from tests.exchange.pserver.pserver_jobs import JobOfProcesses, local
from tests.waiting import until


@pytest.mark.parametrize("job", [(2, 1, "ipc")], indirect=True)
def test_one_async_worker_equals_local_training_bit_for_bit(job: JobOfProcesses) -> None:
    job.start_worker(0, mode="async", steps=30, damping=True)
    net, _ = local(30)
    job.join()
    for name, value in net.state_dict().items():
        assert torch.equal(value, job.weights()[name]), name
    assert job.log(0)[-1]["staleness_max"] == 0


@pytest.mark.parametrize("job", [(2, 2, "ipc")], indirect=True)
def test_killed_worker_does_not_stop_the_other_and_may_come_back(job: JobOfProcesses) -> None:
    job.start_worker(0, mode="async", steps=60, pause_s=0.02)
    victim = job.start_worker(1, mode="async", steps=60, pause_s=0.02)
    until(lambda: len(job.steps("trainer-1")) > 5)
    victim.kill()
    victim.join()
    stopped_at = job.steps("trainer-0")[-1]
    until(lambda: job.steps("trainer-0")[-1] > stopped_at + 5)
    job.start_worker(1, "trainer-1-again", mode="async", steps=60, pause_s=0.02)
    job.join()
    again = job.lines("trainer-1-again")
    assert again[0]["joined"] > stopped_at  # it goes on where the others are
    assert again[-1]["counted"] == [2.0, 1.0]
    assert job.steps("trainer-0") == list(range(60))
    log = job.log(0)
    assert any(line["kind"] == "lost" and line["worker"] == 1 for line in log)
    assert any(line["kind"] == "join" and line["rejoined"] for line in log)
    assert log[-1]["staleness_mean"] > 0
    assert sum(log[-1]["staleness_histogram"].values()) > 60


@pytest.mark.parametrize("job", [(2, 2, "tcp")], indirect=True)
def test_a_launcher_that_sees_a_worker_die_on_another_machine_tells_the_servers(job: JobOfProcesses) -> None:
    job.start_worker(0, mode="ssp:1", steps=200, remote=True)
    victim = job.start_worker(1, mode="ssp:1", steps=200, remote=True)
    until(lambda: len(job.steps("trainer-1")) > 5)
    victim.kill()
    time.sleep(0.5)
    assert job.steps("trainer-0")[-1] <= job.steps("trainer-1")[-1] + 3  # it waits: nobody knows yet
    declare_lost(job.role("trainer", 0), rank=1)
    job.join()  # the servers too: they do not wait for the dead
    assert job.steps("trainer-0") == list(range(200))


@pytest.mark.parametrize("mode", ["async", "ssp:1"])
@pytest.mark.parametrize("job", [(2, 3, "ipc")], indirect=True)
def test_workers_that_stop_at_different_steps_wait_for_nobodys_steps(job: JobOfProcesses, mode: str) -> None:
    """As after Ctrl-C. One has left before the others meet in the middle; then all meet once more."""
    steps = (3, 20, 14)
    for rank, number in enumerate(steps):
        job.start_worker(rank, mode=mode, steps=number, settles_at=10, leaves=True)
    job.join()
    for rank, number in enumerate(steps):
        assert job.steps(f"trainer-{rank}") == list(range(number))
        assert job.lines(f"trainer-{rank}")[-1]["counted"] == [3.0, 3.0]


@pytest.mark.parametrize("job", [(2, 3, "ipc")], indirect=True)
def test_ssp_bound_holds_while_a_worker_sleeps_and_nothing_is_lost(job: JobOfProcesses) -> None:
    bound, steps = 2, 40
    workers = [job.start_worker(rank, mode=f"ssp:{bound}", steps=steps) for rank in range(3)]
    sleeper = "trainer-2"
    until(lambda: len(job.steps(sleeper)) > 5)
    os.kill(workers[2].pid or 0, signal.SIGSTOP)
    time.sleep(1.0)  # far longer than the steps within the bound take
    slept_at = job.steps(sleeper)[-1]
    ahead = [job.steps(f"trainer-{rank}")[-1] - slept_at for rank in range(2)]
    time.sleep(0.5)
    assert [job.steps(f"trainer-{rank}")[-1] - slept_at for rank in range(2)] == ahead, "they went on"
    # The sleeper may have pushed one step more than it had time to write down.
    assert max(ahead) <= bound + 1
    os.kill(workers[2].pid or 0, signal.SIGCONT)
    job.join()
    for rank in range(3):
        assert job.steps(f"trainer-{rank}") == list(range(steps))
    for server in range(2):
        updates = [(line["worker"], line["step"]) for line in job.log(server) if line["kind"] == "update"]
        assert sorted(updates) == [(rank, step) for rank in range(3) for step in range(steps)]
        position = dict.fromkeys(range(3), -1)
        for worker, step in updates:  # in the order in which they were applied
            position[worker] = step
            # a worker that pushes step s is at most `bound` ahead of the one that has pushed least
            assert step - (min(position.values()) + 1) <= bound


@pytest.mark.parametrize("job", [(1, 2, "tcp")], indirect=True)
def test_a_worker_waits_for_a_sum_longer_than_after_which_it_asks_again(job: JobOfProcesses) -> None:
    """The reply to the repeated request is about the sum. It was taken for one about a push, of slice number 3."""
    job.start_worker(0, mode="async", steps=12, settles_at=6, timeout_s=8.0, remote=True)
    sleeper = job.start_worker(1, mode="async", steps=12, settles_at=6, timeout_s=8.0, pause_s=0.2, remote=True)
    until(lambda: len(job.steps("trainer-0")) == 6)
    os.kill(sleeper.pid or 0, signal.SIGSTOP)
    time.sleep(4.5)  # worker 0 asks again after 2 s, and again
    os.kill(sleeper.pid or 0, signal.SIGCONT)
    job.join()
    for rank in range(2):
        assert job.steps(f"trainer-{rank}") == list(range(12))
