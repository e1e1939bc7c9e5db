"""Workers tell one another something at a parameter server, before they join it."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from phalanx.exchange.base import LostWorker
from phalanx.exchange.pserver.gather import Gathered, ServerMeeting
from phalanx.wire.seal import Refused
from tests.exchange.pserver.pserver_jobs import JobOfProcesses


@pytest.mark.parametrize("job", [(1, 2, "ipc"), (2, 2, "tcp")], indirect=True)
def test_all_hear_the_same_and_so_does_who_comes_later(job: JobOfProcesses) -> None:
    def meet(rank: int, text: str) -> list[str]:
        return ServerMeeting(job.role("trainer", rank), 60).gather("machine", text)

    with ThreadPoolExecutor(2) as pool:
        heard = list(pool.map(meet, (0, 1), ("first", "second")))
    assert heard == [["first", "second"]] * 2
    assert meet(1, "started anew, on another machine") == ["first", "second"]
    with pytest.raises(LostWorker, match="1 of 2 workers did not come within 1 s") as caught:
        ServerMeeting(job.role("trainer", 0), 1).gather("other", "alone")
    assert "has not heard of worker 1" in caught.value.why


@pytest.mark.parametrize("job", [(1, 1, "tcp")], indirect=True)
def test_a_stranger_is_told_nothing(job: JobOfProcesses) -> None:
    assert ServerMeeting(job.role("trainer", 0), 60).gather("machine", "mine") == ["mine"]
    with pytest.raises(LostWorker, match="has not answered for 2 s"):
        ServerMeeting(replace(job.role("trainer", 0), key="guessed"), 2).gather("machine", "x")


def test_what_is_not_of_the_job_is_refused() -> None:
    gathered = Gathered()
    assert gathered.take(0, {"topic": "t", "text": "x", "world": 2}) == {"missing": [1], "texts": []}
    for rank, told in (
        (2, {"topic": "t", "text": "x", "world": 2}),
        (1, {"topic": "t", "text": "x", "world": 3}),
        (1, {"topic": "t", "text": 5, "world": 2}),
        (1, {}),
    ):
        with pytest.raises(Refused):
            gathered.take(rank, told)
