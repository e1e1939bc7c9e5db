"""A DMLC scheduler stays until the processes of its job have ended, and only for those."""

import socket
import threading

import pytest

from phalanx.config.role import AllowedHosts, Role
from phalanx.launch.env import attendance
from phalanx.net.interfaces import PORT_RANGE, free_port

SCHEDULER = Role("scheduler", world=2, key="secret", allowed_hosts=AllowedHosts(("127.0.0.1",)))


def leave() -> None:
    """As when the process ends that attended last."""
    attendance._held.pop().close()


def test_it_is_attended_within_the_range_of_ports(monkeypatch: pytest.MonkeyPatch) -> None:
    allowed = free_port("0.0.0.0")
    monkeypatch.setenv(PORT_RANGE, f"{allowed}-{allowed}")
    assert attendance.open_attendance("127.0.0.1") == allowed
    leave()


def test_strangers_do_not_hold_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attendance, "_held", [])
    port = attendance.open_attendance("127.0.0.1")
    waiting = threading.Thread(target=attendance.await_end, args=(SCHEDULER, 120.0), daemon=True)
    with socket.create_connection(("127.0.0.1", port)), socket.create_connection(("127.0.0.1", port)) as loud:
        loud.sendall(b"x" * 32)
        waiting.start()
        assert loud.recv(1) == b""  # it is sent away
        for rank in range(2):
            attendance.attend(Role("trainer", rank, 2, key="secret"), "127.0.0.1", port)
        leave()
        waiting.join(1)
        assert waiting.is_alive()
        leave()
        waiting.join(60)
        assert not waiting.is_alive()


def test_that_it_cannot_be_attended_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    port = free_port("127.0.0.1")
    attendance.attend(Role("trainer", 3, 4), "127.0.0.1", port)
    said = capsys.readouterr().err
    assert f"cannot reach the scheduler at 127.0.0.1:{port}: connection refused" in said
    assert said.startswith("warning: trainer-3 on ")
