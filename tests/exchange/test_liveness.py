"""A process that computes is alive, one that is stopped is silent, one without the key does not count."""

import ctypes
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import Pipe
from multiprocessing.connection import Connection

import pytest

from phalanx.errors import UserError
from phalanx.exchange.liveness import Listener, LivenessWatch, Peer
from tests.processes import preload, start
from tests.waiting import until

SILENCE_S = 2.0

preload("phalanx.exchange.liveness")


def listen(told: Connection) -> None:
    """Be there, and compute for longer than silence may take, in native code that lets nothing of Python run."""
    listener = Listener("127.0.0.1", "secret", SILENCE_S)
    told.send(listener.endpoint)
    told.recv()
    ctypes.PyDLL(None).usleep(int(3e6 * SILENCE_S))
    told.send("computed")
    time.sleep(600)


@contextmanager
def watching(endpoint: str, key: str = "secret") -> Iterator[LivenessWatch]:
    watch = LivenessWatch("me", {endpoint: Peer("the other")}, SILENCE_S, key=key)
    try:
        yield watch
    finally:
        watch.close()


@pytest.mark.parametrize(
    ("number", "why"), [(signal.SIGKILL, "its process has ended"), (signal.SIGSTOP, "no sign of life for 2 s")]
)
def test_a_long_step_is_no_silence_and_silence_is(number: signal.Signals, why: str) -> None:
    mine, theirs = Pipe()
    process = start(listen, theirs)
    try:
        with watching(mine.recv()) as watch:
            watch.await_all()
            mine.send("compute")
            assert mine.recv() == "computed"
            assert watch.lost() is None
            os.kill(process.pid or 0, number)
            until(lambda: watch.lost() is not None)
            lost = watch.lost()
            assert lost is not None
            assert lost.what == "the other is gone or silent"
            assert why in lost.why
    finally:
        process.kill()
        process.join()


def test_only_who_has_the_key_is_taken_for_a_peer() -> None:
    listener = Listener("127.0.0.1", "secret", SILENCE_S)
    with watching(listener.endpoint) as watch:
        watch.await_all()
    with (
        watching(listener.endpoint, key="another") as watch,
        pytest.raises(UserError, match="cannot connect"),
    ):
        watch.await_all(2.0)
    listener.close()


def test_listeners_keep_to_the_range_of_ports(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PHALANX_PORT_RANGE", "23150-23152")
    held = [Listener("127.0.0.1", "", SILENCE_S, taken=[23151]) for _ in range(2)]
    assert sorted(one.endpoint for one in held) == [f"tcp://127.0.0.1:{port}" for port in (23150, 23152)]
    with pytest.raises(UserError, match="no free port"):
        Listener("127.0.0.1", "", SILENCE_S, taken=[23151])
    for one in held:
        one.close()
