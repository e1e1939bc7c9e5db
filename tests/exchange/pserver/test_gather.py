"""Workers exchange texts at a parameter server, before they join it."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from phalanx.config.role import Role
from phalanx.config.schema import ExchangeConfig
from phalanx.errors import UserError
from phalanx.exchange.base import LostWorker
from phalanx.exchange.liveness import watch_servers
from phalanx.exchange.pserver.gather import Gathered, ServerRendezvous
from phalanx.net.control import Refused
from tests.exchange.pserver.pserver_jobs import JobOfProcesses
from tests.processes import start
from tests.waiting import until

SILENCE_S = 3.0
LONG = 120.0  # what ends a test that fails; never what ends a gathering here


@contextmanager
def rendezvous(role: Role) -> Iterator[ServerRendezvous]:
    """As a worker has it: the servers see that it is there."""
    watch = watch_servers(role, ExchangeConfig(silence_s=SILENCE_S))
    try:
        yield ServerRendezvous(role, LONG, watch)
    finally:
        watch.close()


def gather_and_stay(role: Role, told: Path, *topics: str) -> None:
    """The main of a worker that says something about each topic, and then does not join."""
    with rendezvous(role) as mine:
        for topic in topics:
            mine.gather(topic, f"{role.rank}")
        told.touch()
        time.sleep(LONG)


@pytest.mark.parametrize("job", [(1, 2, "ipc"), (2, 2, "tcp")], indirect=True)
def test_all_workers_get_the_same_texts_and_a_later_one_too(job: JobOfProcesses) -> None:
    def sync_step(rank: int, text: str) -> list[str]:
        return ServerRendezvous(job.role("trainer", rank), 60).gather("machine", text)

    with ThreadPoolExecutor(2) as pool:
        heard = list(pool.map(sync_step, (0, 1), ("first", "second")))
    assert heard == [["first", "second"]] * 2
    assert sync_step(1, "started anew, on another machine") == ["first", "second"]
    with pytest.raises(LostWorker, match="1 of 2 workers did not connect within 1 s") as caught:
        ServerRendezvous(job.role("trainer", 0), 1).gather("other", "alone")
    assert "has no text from worker 1" in caught.value.why


@pytest.mark.parametrize("job", [(1, 1, "tcp")], indirect=True)
def test_a_process_without_the_key_gets_no_reply(job: JobOfProcesses) -> None:
    assert ServerRendezvous(job.role("trainer", 0), 60).gather("machine", "mine") == ["mine"]
    with pytest.raises(LostWorker, match="has not answered for 2 s"):
        ServerRendezvous(replace(job.role("trainer", 0), key="guessed"), 2).gather("machine", "x")


def test_what_is_not_of_the_job_is_refused() -> None:
    gathered = Gathered()
    assert gathered.take(0, {"topic": "t", "text": "x", "world": 2}) == ([1], [])
    for rank, told in (
        (2, {"topic": "t", "text": "x", "world": 2}),
        (1, {"topic": "t", "text": 5, "world": 2}),
        (1, {}),
    ):
        with pytest.raises(Refused):
            gathered.take(rank, told)


def test_a_worker_of_another_number_of_workers_is_refused() -> None:
    gathered = Gathered()
    gathered.take(0, {"topic": "t", "text": "x", "world": 3})
    with pytest.raises(UserError, match="worker 1 cannot join") as caught:
        gathered.take(1, {"topic": "t", "text": "y", "world": 2})
    assert caught.value.why == "it was started as one of 2 workers, the others as some of 3"
    # What the job is, is known once somebody has joined; the first word about it no longer counts.
    assert gathered.take(1, {"topic": "t", "text": "y", "world": 2}, 2) == ([], ["x", "y"])
    with pytest.raises(UserError) as caught:
        gathered.take(0, {"topic": "t", "text": "x", "world": 3}, 2)
    assert caught.value.why == "it was started as one of 3 workers, the others as some of 2"


@pytest.mark.parametrize("job", [(1, 2, "tcp")], indirect=True)
def test_a_worker_of_another_number_of_workers_gets_the_reason(job: JobOfProcesses) -> None:
    with ThreadPoolExecutor(2) as pool:
        sync_step = [ServerRendezvous(job.role("trainer", rank), 60).gather for rank in (0, 1)]
        assert list(pool.map(lambda one: one("t", "x"), sync_step)) == [["x", "x"]] * 2
    with pytest.raises(UserError, match="it was started as one of 3 workers, the others as some of 2"):
        ServerRendezvous(replace(job.role("trainer", 1), world=3), 60).gather("t", "x")


@pytest.mark.parametrize("job", [(1, 70, "tcp", SILENCE_S)], indirect=True)
def test_a_worker_killed_while_others_are_waited_for_is_named(job: JobOfProcesses) -> None:
    victim = start(gather_and_stay, job.role("trainer", 69), job.folder / "told", "first")
    job.workers.append(victim)
    with rendezvous(job.role("trainer", 0)) as mine:

        def missing() -> int:
            with pytest.raises(LostWorker) as caught:
                ServerRendezvous(job.role("trainer", 0), 1, mine.watch).gather("first", "0")
            return int(caught.value.what.split()[0])

        until(lambda: missing() == 68, 60)
        victim.kill()
        with pytest.raises(LostWorker, match="worker 69 is gone: its connection broke, or was silent for 3 s"):
            mine.gather("first", "0")


@pytest.mark.parametrize("job", [(1, 2, "tcp", SILENCE_S)], indirect=True)
@pytest.mark.parametrize("victim", [0, 1])
def test_a_worker_killed_between_two_gatherings_is_named(job: JobOfProcesses, victim: int) -> None:
    """The error names the worker, not the server, which stays until the other worker has got the error."""
    job.workers.append(start(gather_and_stay, job.role("trainer", victim), job.folder / "told", "first"))
    with rendezvous(job.role("trainer", 1 - victim)) as mine:
        mine.gather("first", "x")
        until((job.folder / "told").exists)
        job.workers[0].kill()
        with pytest.raises(LostWorker, match=f"worker {victim} is gone: its connection broke"):
            mine.gather("second", "x")
        assert job.servers[0].exitcode is None
    job.servers[0].join(60)
    assert job.servers[0].exitcode == 0


@pytest.mark.parametrize("job", [(1, 3, "tcp", SILENCE_S)], indirect=True)
def test_a_worker_that_has_not_joined_gets_the_loss_from_the_server(job: JobOfProcesses) -> None:
    with rendezvous(job.role("trainer", 2)) as mine:
        assert mine.watch is not None
        mine.watch.await_all(60)
        for rank in (0, 1):
            job.start_worker(rank, remote=True, timeout_s=LONG)
        until(lambda: all(any("joined" in line for line in job.lines(f"trainer-{rank}")) for rank in (0, 1)), 60)
        job.workers[1].kill()
        job.workers[0].join(60)
        assert "worker 1 at 127.0.0.1 is gone" in job.lines("trainer-0")[-1]["error"]
        with pytest.raises(LostWorker, match=r"worker 1 at 127\.0\.0\.1 is gone"):
            mine.gather("second", "x")
    job.servers[0].join(60)
    assert job.servers[0].exitcode == 0
