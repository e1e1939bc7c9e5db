"""What the lab does to a network is real, and over when it is over."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pytest

from tests.lab import network
from tests.lab.hosts import Lab, hosts_up

# Seconds to connect to the other host's sshd; -1 if that takes longer than one.
KNOCK = """
import socket, sys, time
began = time.monotonic()
try:
    socket.create_connection((sys.argv[1], 22), timeout=1.0).close()
    print(time.monotonic() - began)
except TimeoutError:
    print(-1)
"""
pytestmark = pytest.mark.lab


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with hosts_up(2) as up:
        yield up


def knock(lab: Lab) -> float:
    return float(lab.run("h1", [sys.executable, "-c", KNOCK, lab.address("h2")]).stdout)


@pytest.mark.parametrize("fault", [network.partitioned, network.mute, network.deaf, network.cut])
def test_nothing_gets_through(lab: Lab, fault: Callable[[Lab, str], AbstractContextManager[None]]) -> None:
    with fault(lab, "h2"):
        assert knock(lab) == -1
    assert knock(lab) >= 0


def test_packets_are_held_and_then_let_go(lab: Lab) -> None:
    with network.delayed(lab, "h2", 300):
        assert knock(lab) >= 0.3
    assert knock(lab) >= 0


def test_packets_are_lost_by_chance(lab: Lab) -> None:
    with network.lossy(lab, "h2", 1.0):
        assert knock(lab) == -1
    assert knock(lab) >= 0


def test_a_narrow_link(lab: Lab) -> None:
    send = "dd if=/dev/zero bs=64k count=32 status=none > /dev/tcp/10.77.0.1/17999"
    with network.limited(lab, "h2", "8mbit"):
        listening = lab.start("h1", ["timeout", "60", sys.executable, "-c", _TAKE])
        assert listening.stdout is not None
        listening.stdout.readline()
        began = time.monotonic()
        lab.run("h2", ["bash", "-c", send])
        assert listening.stdout.readline().strip() == str(32 << 16)
        assert time.monotonic() - began > 1.5  # 2 MB at 1 MB/s
        listening.wait()


_TAKE = """
import socket
server = socket.create_server(("10.77.0.1", 17999))
print("listening", flush=True)
connection, _ = server.accept()
taken = 0
while chunk := connection.recv(1 << 16):
    taken += len(chunk)
print(taken, flush=True)
"""
