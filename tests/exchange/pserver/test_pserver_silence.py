"""Workers and servers that are gone are missed in seconds, silent ones within `silence_s`; long steps are no silence.

`timeout_s` is far beyond what these tests wait for.
"""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
import zmq

from phalanx.config.schema import ExchangeConfig
from phalanx.exchange.base import LostWorker
from phalanx.exchange.liveness import presence_id, watch_servers
from phalanx.exchange.pserver.servers import Servers
from phalanx.net.curve import secure_client
from tests.exchange.pserver.pserver_jobs import KEY, JobOfProcesses
from tests.waiting import until

LONG = 3000.0


@contextmanager
def seen(job: JobOfProcesses, rank: int, looks: int = 1) -> Iterator[None]:
    """A worker that is there, from when the server has looked at it, and is gone afterwards."""
    with zmq.Context() as context, context.socket(zmq.DEALER) as socket:
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.ROUTING_ID, presence_id(KEY, rank))
        secure_client(socket, job.addresses[0], KEY)
        socket.connect(job.addresses[0])
        for _ in range(looks):
            assert socket.poll(60_000)
            assert socket.recv() == b""
        yield


@pytest.mark.parametrize("job", [(2, 2, "tcp", 2.0)], indirect=True)
def test_a_step_that_takes_longer_than_silence_may_is_no_silence(job: JobOfProcesses) -> None:
    """Not even if its native code keeps everything else of Python from running."""
    job.start_worker(0, remote=True, timeout_s=LONG, steps=3)
    job.start_worker(1, remote=True, timeout_s=LONG, steps=3, hold_s=5.0)
    job.join(120)
    for rank in range(2):
        assert job.lines(f"trainer-{rank}")[-1]["done"]


@pytest.mark.parametrize("job", [(2, 2, "tcp", 3.0)], indirect=True)
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "silent"])
def test_a_lost_worker_of_another_host_ends_a_sync_job(job: JobOfProcesses, number: signal.Signals) -> None:
    job.start_worker(0, remote=True, timeout_s=LONG, steps=100_000)
    victim = job.start_worker(1, remote=True, timeout_s=LONG, steps=100_000)
    until(lambda: len(job.steps("trainer-1")) > 3)
    os.kill(victim.pid or 0, number)
    for process in [job.workers[0], *job.servers]:
        process.join(60)
        assert process.exitcode is not None
    said = job.lines("trainer-0")[-1]["error"]
    assert "worker 1 at 127.0.0.1 is gone: its connection broke, or was silent for 3 s" in said


@pytest.mark.parametrize("job", [(2, 3, "tcp", 3.0)], indirect=True)
def test_async_workers_go_on_without_a_lost_one_and_servers_end_with_the_last(job: JobOfProcesses) -> None:
    workers = [
        job.start_worker(rank, remote=True, timeout_s=LONG, steps=100_000, mode="ssp:1", pause_s=0.02)
        for rank in range(3)
    ]
    until(lambda: all(len(job.steps(f"trainer-{rank}")) > 3 for rank in range(3)))
    os.kill(workers[1].pid or 0, signal.SIGSTOP)
    until(lambda: any(line["kind"] == "lost" for line in job.log(0)), 60)
    reached = job.steps("trainer-0")[-1]
    until(lambda: min(job.steps(f"trainer-{rank}")[-1] for rank in (0, 2)) > reached + 10, 60)
    for worker in workers:
        worker.kill()
    for server in job.servers:
        server.join(60)
        assert server.exitcode == 0


@pytest.mark.parametrize("job", [(2, 1, "tcp", 3.0)], indirect=True)
@pytest.mark.parametrize(
    ("number", "why"), [(signal.SIGKILL, "its process has ended"), (signal.SIGSTOP, "no sign of life for 3 s")]
)
def test_a_lost_server_ends_the_trainers(job: JobOfProcesses, number: signal.Signals, why: str) -> None:
    job.start_worker(0, remote=True, timeout_s=LONG, steps=100_000)
    until(lambda: len(job.steps("trainer-0")) > 3)
    os.kill(job.servers[1].pid or 0, number)
    job.workers[0].join(60)
    said = job.lines("trainer-0")[-1]["error"]
    assert "parameter server 1 at tcp://127.0.0.1:" in said
    assert why in said
    job.servers[0].join(60)
    assert job.servers[0].exitcode == 0  # its only worker has left


@pytest.mark.parametrize("job", [(1, 1, "tcp", 3.0)], indirect=True)
def test_a_server_ends_when_the_first_worker_is_gone_before_it_joined(job: JobOfProcesses) -> None:
    """As when its data cannot be opened."""
    with seen(job, rank=0, looks=4):
        assert job.servers[0].exitcode is None
    job.servers[0].join(60)
    assert job.servers[0].exitcode == 0


@pytest.mark.parametrize("job", [(1, 2, "tcp", 3.0)], indirect=True)
def test_a_worker_that_is_gone_before_anybody_joined_is_not_waited_for(job: JobOfProcesses) -> None:
    with seen(job, rank=1):
        pass
    job.start_worker(0, timeout_s=LONG)
    job.join(60)
    assert "worker 1 is gone" in job.lines("trainer-0")[-1]["error"]


@pytest.mark.parametrize("job", [(1, 1, "tcp")], indirect=True)
def test_a_server_with_another_key_is_not_waited_for_as_one_that_has_not_come(job: JobOfProcesses) -> None:
    stranger = replace(job.role("trainer", 0), key="another")
    servers = Servers(stranger, LONG, watch_servers(stranger, ExchangeConfig()))
    with pytest.raises(LostWorker, match=r"does not answer\n.*another key"):
        servers.links[0].hello()
