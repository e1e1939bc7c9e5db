"""Workers tell one another something before the first step, at torch's store."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from phalanx.config.role import Role
from phalanx.errors import UserError
from phalanx.exchange.rendezvous import LocalRendezvous, StoreRendezvous
from phalanx.net.interfaces import free_port


def test_one_worker_hears_itself() -> None:
    assert LocalRendezvous().gather("topic", "ü") == ["ü"]


def test_trainers_meet_at_torchs_store() -> None:
    place = f"127.0.0.1:{free_port('127.0.0.1')}"

    def sync_step(rank: int) -> list[list[str]]:
        rendezvous = StoreRendezvous(Role(rank=rank, world=3, master=place), 60)
        heard = [rendezvous.gather("one", f"ü{rank}"), rendezvous.gather("two", "x" * rank)]
        everybody.wait()  # the first one keeps the store
        rendezvous.close()
        return heard

    everybody = threading.Barrier(3, timeout=60)
    with ThreadPoolExecutor(3) as pool:
        heard = list(pool.map(sync_step, range(3)))
    assert heard == [[["ü0", "ü1", "ü2"], ["", "x", "xx"]]] * 3


def test_one_that_does_not_come_is_missed() -> None:
    place = f"127.0.0.1:{free_port('127.0.0.1')}"
    with pytest.raises(UserError, match=f"trainer-1 on .* cannot reach trainer-0 at {place}"):
        StoreRendezvous(Role(rank=1, world=2, master=place), 2)
    with pytest.raises(UserError, match=r"trainer-0 on .* waited in vain for trainer-1") as caught:
        StoreRendezvous(Role(rank=0, world=2, master=place), 2)
    assert "1 of 2 came within 2 s" in caught.value.why
