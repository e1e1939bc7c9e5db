"""torch's store, with strangers who reach it: where it listens, and texts that the job's key does not prove."""

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from phalanx.errors import UserError
from phalanx.machine.listening import listening_sockets
from phalanx.net.interfaces import free_port, own_address_of
from phalanx.net.store import FILE, SealedStore, join_tcp_store, open_file_store, serve_tcp_store
from tests.conftest import LEAN

HERE = "127.0.0.1"


def opened(tmp_path: Path, kind: str) -> tuple[Any, Any]:
    """A store as its first process and a second one see it; the second may be a stranger."""
    if kind == "file":
        address = f"{FILE}{tmp_path}/store"
        return open_file_store(address, 60), open_file_store(address, 60)
    port = free_port(HERE)
    first = serve_tcp_store(HERE, port, "trainer-0", 60, one_machine=True)
    return first, join_tcp_store(HERE, port, "trainer-1", "trainer-0", 60)


@pytest.mark.parametrize("kind", ["file", "tcp"])
def test_what_a_stranger_writes_is_refused(tmp_path: Path, kind: str) -> None:
    one, other = opened(tmp_path, kind)
    mine, theirs = SealedStore(one, "secret", "1"), SealedStore(other, "secret", "1")
    theirs.set("settings/1", "lr=ü:1")
    assert mine.get("settings/1").decode() == "lr=ü:1"
    sealed = bytes(other.get("settings/1")).decode()
    for forged in ("lr=9", sealed.replace("lr=ü", "lr=9"), "sealed:00:lr=9", "sealed:"):
        other.set("settings/1", forged)
        with pytest.raises(UserError, match="settings/1 at the job's store is not of this job") as error:
            mine.get("settings/1")
        assert "PHALANX_KEY" in error.value.remedy
    other.set("settings/0", sealed)  # another process's text
    with pytest.raises(UserError, match="is not of this job"):
        mine.get("settings/0")
    other.set("settings/1", sealed)
    with pytest.raises(UserError, match="is not of this job"):
        SealedStore(one, "secret", "2").get("settings/1")  # of an earlier group
    with pytest.raises(UserError, match="is not of this job"):
        SealedStore(one, "guessed", "1").get("settings/1")


def test_a_process_without_the_key_of_the_others_is_told(tmp_path: Path) -> None:
    one, other = opened(tmp_path, "file")
    SealedStore(one, "secret", "1").set("a", "text")
    with pytest.raises(UserError) as error:
        SealedStore(other, "", "1").get("a")
    assert "this one has none" in error.value.why
    SealedStore(other, "", "1").set("b", "text")
    assert SealedStore(one, "", "1").get("b") == b"text"


def test_it_listens_at_its_address_alone() -> None:
    port = free_port(HERE)
    store = serve_tcp_store(HERE, port, "trainer-0", 60, one_machine=False)
    assert [place.host for place in listening_sockets([os.getpid()]) if place.port == port] == [HERE]
    with pytest.raises(UserError, match=f"trainer-1 cannot listen at {HERE}:{port}"):
        serve_tcp_store(HERE, port, "trainer-1", 60, one_machine=False)
    del store


def test_the_address_that_others_mean() -> None:
    assert own_address_of(HERE) == HERE
    assert own_address_of("localhost") in (HERE, "::1")
    assert own_address_of("192.0.2.1") is None  # of a documentation network: nobody's
    assert own_address_of("no-such-host.invalid") is None
    mine = own_address_of(socket.gethostname())
    assert mine is None or not mine.startswith("127.")


def test_a_job_whose_store_a_stranger_writes_to_ends_with_the_reason(tmp_path: Path) -> None:
    """A real worker waits for the second one, and a stranger speaks in its place."""
    port = free_port(HERE)
    train = [sys.executable, "-m", "phalanx", "train", "digits", *LEAN, "train.length=2st", "model.name=wrn10_1"]
    place = {"MASTER_ADDR": HERE, "MASTER_PORT": str(port), "RANK": "0", "WORLD_SIZE": "2", "PHALANX_KEY": "secret"}
    worker = subprocess.Popen(
        [*train, "--out", str(tmp_path / "run")], env={**os.environ, **place}, stderr=subprocess.PIPE, text=True
    )
    try:
        stranger = join_tcp_store(HERE, port, "a stranger", "trainer-0", 120)
        stranger.set("code/1", bytes(stranger.get("code/0")).decode())
        _, said = worker.communicate(timeout=120)
    finally:
        worker.kill()
        worker.wait()
    assert worker.returncode == 2
    assert "the text code/1 at the job's store is not of this job" in said
    assert "the job's key does not prove it" in said
