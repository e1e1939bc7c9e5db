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
import zmq

from phalanx.errors import UserError
from phalanx.exchange.liveness import Listener, LivenessWatch, Peer, grace_s, heartbeats
from phalanx.exchange.pserver.presence import Presence
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


@pytest.mark.parametrize("silence_s", [6.0, 30.0])
def test_nobody_is_taken_for_lost_much_before_the_silence_that_is_allowed(silence_s: float) -> None:
    """A pause of 5 s of 6 ended a job: where the last beat fell, 4.5 s were enough."""
    options = heartbeats(silence_s)
    beat_s, silent_s = options[zmq.HEARTBEAT_IVL] / 1000, options[zmq.HEARTBEAT_TIMEOUT] / 1000
    assert silent_s + grace_s(silence_s) >= 11 / 12 * silence_s - 0.01
    assert beat_s + silent_s + grace_s(silence_s) <= silence_s


def test_a_server_gives_a_broken_connection_its_whole_grace() -> None:
    with zmq.Context() as context, context.socket(zmq.ROUTER) as socket:
        socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
        presence = Presence(socket, "secret", silence_s=6.0, look_s=0.5)
        presence.expect(1)
        for seconds in (0.0, 0.5):
            assert presence.gone([1]) == [], f"{seconds} s of {grace_s(6.0)} s have passed since it was first missed"
        assert presence.gone([1]) == [1]


def test_a_server_that_is_to_end_waits_only_shortly_for_a_broken_connection() -> None:
    with zmq.Context() as context, context.socket(zmq.ROUTER) as socket:
        socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
        presence = Presence(socket, "secret", silence_s=30.0, look_s=0.5)
        presence.expect(1)
        for _ in range(3):
            assert presence.gone([1], at_once=True) == [], "it may connect again"
        assert presence.gone([1], at_once=True) == [1]


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
