"""Messages without the key, of another version, or damaged are refused and counted; training is unaffected."""

import socket
from dataclasses import replace

import pytest
import torch
import zmq

from phalanx.exchange.pserver.gradients import PserverGradients
from phalanx.exchange.pserver.wire import WIRE, Header, MessageKind
from phalanx.net.curve import secure_client
from tests.exchange.pserver.pserver_jobs import KEY, JobOfProcesses, Task, exchange_of, local, model
from tests.waiting import until


def dealer(address: str, key: str = "") -> "zmq.Socket[bytes]":
    """A socket of a process that is no worker, and with the key gets as far as that its messages are read."""
    stranger: zmq.Socket[bytes] = zmq.Context().socket(zmq.DEALER)
    secure_client(stranger, address, key)
    stranger.setsockopt(zmq.LINGER, 1000)
    stranger.connect(address)
    return stranger


@pytest.mark.parametrize("job", [(1, 1, "tcp")], indirect=True)
def test_strangers_are_refused_and_training_is_unharmed(job: JobOfProcesses) -> None:
    job.start_worker(0, steps=50, pause_s=0.03)
    until(lambda: len(job.steps("trainer-0")) > 2)
    address = job.addresses[0]
    host, port = address.removeprefix("tcp://").split(":")

    with socket.create_connection((host, int(port))) as raw:  # does not even speak zmq
        raw.sendall(b"GET / HTTP/1.1\r\n\r\n" * 50)
    unkeyed = dealer(address)  # speaks zmq, and has no key: nothing of it arrives
    unkeyed.send_multipart([b"far", b"too", b"many", b"frames"])

    stranger = dealer(address, KEY)
    push = Header(MessageKind.PUSH, worker=0, incarnation=5, sequence=10**6, step=3, present=1, length=64)
    good = bytes(WIRE.frames(push)[0])
    stranger.send(b"garbage")
    stranger.send_multipart([b"far", b"too", b"many", b"frames"])
    stranger.send_multipart([good[:4] + b"\x63" + good[5:], b""])  # version 99
    stranger.send_multipart([good + b"\xff", b""])
    stranger.send_multipart([*WIRE.frames(replace(push, length=1 << 60)), b"short"])
    stranger.send_multipart(WIRE.frames(push))  # the right key, but it never joined
    stranger.close()
    unkeyed.close(linger=0)
    net, _ = local(50)
    job.join()
    for name, value in net.state_dict().items():
        assert torch.equal(value, job.weights()[name]), name
    refused = {"garbage": 3, "version": 1, "length": 1, "stranger": 1}
    assert job.log(0)[-1]["refused"] == refused


@pytest.mark.parametrize("job", [(1, 2, "tcp")], indirect=True)
def test_a_member_with_broken_messages_is_refused_too(job: JobOfProcesses) -> None:
    job.start_worker(0, mode="async", steps=30, pause_s=0.02)
    bad = exchange_of(Task(job.role("trainer", 1), job.folder / "bad", mode="async"), model())
    assert isinstance(bad.gradients, PserverGradients)
    link = bad.gradients.servers.links[0]
    push = Header(MessageKind.PUSH, 1, link.incarnation, 1, 0, slice=0, present=1, length=64)
    link.send(replace(push, slice=999))
    link.send(push)  # a slice has another length
    link.send(replace(push, incarnation=link.incarnation + 1))
    link.send(replace(push, kind=MessageKind.WELCOME))
    bad.close()
    job.join()
    assert job.steps("trainer-0") == list(range(30))
    assert job.log(0)[-1]["refused"] == {"slice": 1, "length": 1, "incarnation": 1, "kind": 1}


@pytest.mark.parametrize("job", [(1, 2, "ipc")], indirect=True)
def test_workers_of_another_job_get_the_reason(job: JobOfProcesses) -> None:
    job.start_worker(0, steps=10_000)
    until(lambda: job.lines("trainer-0"))
    other = job.start_worker(1, optim=("lr=0.5",))
    other.join(60)
    error = job.lines("trainer-1")[-1]["error"]
    assert "cannot join" in error
    assert "optim" in error
