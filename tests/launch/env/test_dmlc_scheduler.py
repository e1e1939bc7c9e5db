"""A DMLC scheduler runs until the processes of its job have ended, and waits for no others."""

import socket
import threading

import pytest

from phalanx.config.role import AllowedHosts, Role
from phalanx.launch.env import dmlc_scheduler
from phalanx.net.interfaces import PORT_RANGE, free_port

SCHEDULER = Role("scheduler", world=2, key="secret", allowed_hosts=AllowedHosts(("127.0.0.1",)))


def leave() -> None:
    """Close the last connection, as the end of its process does."""
    dmlc_scheduler._held.pop().close()


def test_it_listens_within_the_port_range(monkeypatch: pytest.MonkeyPatch) -> None:
    allowed = free_port("0.0.0.0")
    monkeypatch.setenv(PORT_RANGE, f"{allowed}-{allowed}")
    assert dmlc_scheduler.open_listener("127.0.0.1") == allowed
    leave()


def test_other_programs_do_not_keep_it_running(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dmlc_scheduler, "_held", [])
    port = dmlc_scheduler.open_listener("127.0.0.1")
    waiting = threading.Thread(target=dmlc_scheduler.await_end, args=(SCHEDULER, 120.0), daemon=True)
    with socket.create_connection(("127.0.0.1", port)), socket.create_connection(("127.0.0.1", port)) as loud:
        loud.sendall(b"x" * 32)
        waiting.start()
        assert loud.recv(1) == b""  # it is sent away
        for rank in range(2):
            dmlc_scheduler.connect(Role("trainer", rank, 2, key="secret"), "127.0.0.1", port)
        leave()
        waiting.join(1)
        assert waiting.is_alive()
        leave()
        waiting.join(60)
        assert not waiting.is_alive()


def test_a_failed_connection_gives_a_warning(capsys: pytest.CaptureFixture[str]) -> None:
    port = free_port("127.0.0.1")
    dmlc_scheduler.connect(Role("trainer", 3, 4), "127.0.0.1", port)
    said = capsys.readouterr().err
    assert f"cannot reach the scheduler at 127.0.0.1:{port}: connection refused" in said
    assert said.startswith("warning: trainer-3 on ")
