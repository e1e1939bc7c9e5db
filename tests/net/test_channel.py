"""Channels between processes that have the job's key: nobody else gets in, changes messages, or costs memory."""

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import zmq

from phalanx.errors import UserError
from phalanx.net.client_channel import LARGE_BYTES, ClientChannel
from phalanx.net.encryption import Encrypt, encrypts, has_aes
from phalanx.net.interfaces import free_port
from phalanx.net.key import key_for
from phalanx.net.lane import Lane
from phalanx.net.lane_cipher import KEY_BYTES, LaneCipher
from phalanx.net.lane_loop import LaneLoop
from phalanx.net.server_channel import ServerChannel
from tests.waiting import until

KEY = "the job's secret"
BODY = bytes(range(256)) * 4096  # 1 MB: goes over the lane
Context = zmq.Context[zmq.Socket[bytes]]


class Pair:
    """A server that echoes, in a thread of its own, and clients."""

    def __init__(self, address: str = "tcp://127.0.0.1:*", key: str = KEY) -> None:
        self.context: Context = zmq.Context()
        options = {zmq.ROUTER_MANDATORY: 1}
        self.server = ServerChannel(self.context, address, key, "a server", harm="read", options=options)
        self.received: list[list[bytes]] = []
        self.peers: list[Any] = []
        self._clients: list[ClientChannel] = []
        self._stopping = False
        self._thread = threading.Thread(target=self._echo)
        self._thread.start()

    def client(self, key: str = KEY, *, encrypt: bool = True, routing_id: bytes = b"") -> ClientChannel:
        options = {zmq.ROUTING_ID: routing_id} if routing_id else {}
        client = ClientChannel(self.context, self.server.address, key, encrypt=encrypt, options=options)
        client.connect("server", "tcp://HOST:PORT")
        self._clients.append(client)
        return client

    def _echo(self) -> None:
        poller = zmq.Poller()
        poller.register(self.server.socket, zmq.POLLIN)
        while not self._stopping:
            poller.poll(10)
            try:
                while True:
                    identity, *frames = self.server.recv_multipart()
                    self.peers.append(identity.get("Peer-Address"))
                    message = [bytes(frame.buffer) for frame in frames]
                    self.received.append(message)
                    self.server.send_multipart([bytes(identity.buffer), *message])
            except zmq.Again:
                pass

    def close(self) -> None:
        self._stopping = True
        self._thread.join()
        for client in self._clients:
            client.close()
        self.server.close(0.0)
        self.context.destroy(linger=0)


@pytest.fixture
def pair() -> Iterator[Pair]:
    made = Pair()
    yield made
    made.close()


def reply(client: ClientChannel, timeout_s: float = 30.0) -> list[bytes]:
    found: list[list[bytes]] = []

    def look() -> bool:
        try:
            found.append([bytes(frame.buffer) for frame in client.recv_multipart()])
        except zmq.Again:
            client.poll(20)
        return bool(found)

    until(look, timeout_s=timeout_s)
    return found[0]


@pytest.mark.parametrize("encrypt", [True, False])
def test_small_and_large_messages_arrive_as_they_were_sent(pair: Pair, encrypt: bool) -> None:
    client = pair.client(encrypt=encrypt)
    for message in ([b"small", b""], [b"head", b"control", BODY], [b"head", BODY], [b"", b"x" * (LARGE_BYTES + 1)]):
        client.send_multipart(message)
        assert reply(client) == message
    assert set(pair.peers) == {"127.0.0.1"}


def test_a_private_socket_needs_no_lane(tmp_path: Path) -> None:
    pair = Pair(f"ipc://{tmp_path}/server")
    try:
        assert (tmp_path / "server").stat().st_mode & 0o077 == 0, "whatever the folder: only this user may connect"
        client = pair.client()
        client.send_multipart([b"head", BODY])
        assert reply(client) == [b"head", BODY]
    finally:
        pair.close()


@pytest.mark.parametrize("side", ["server", "client"])
@pytest.mark.parametrize("place", ["open/server", "open/not-there-yet/server", "@in-no-folder"])
def test_a_socket_where_others_could_put_theirs_is_refused(tmp_path: Path, side: str, place: str) -> None:
    """At such a path another user's process may wait for the trainers of this one."""
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o1777)
    address = f"ipc://{place}" if place.startswith("@") else f"ipc://{tmp_path}/{place}"
    context: Context = zmq.Context()
    open_it: dict[str, Callable[[], object]] = {
        "server": lambda: ServerChannel(context, address, KEY, "a server", harm="read"),
        "client": lambda: ClientChannel(context, address, KEY, encrypt=False, options={}),
    }
    with pytest.raises(UserError, match="other users of this machine can listen"):
        open_it[side]()
    context.destroy(linger=0)


def test_without_the_key_nothing_gets_in_or_out(pair: Pair) -> None:
    for key in ("", "guessed"):
        stranger = pair.client(key)
        stranger.send_multipart([b"let", b"me in"])
        stranger.send_multipart([b"let", BODY])
        assert not stranger.poll(700)
    assert not pair.received


def test_a_stranger_cannot_take_over_a_connection(pair: Pair) -> None:
    """A connection's identity is known to who listens on the network; ZeroMQ hands it over to the next who has it."""
    client = pair.client(routing_id=b"worker 1")
    client.send_multipart([b"before", b""])
    assert reply(client) == [b"before", b""]
    for key in ("", "guessed"):
        pair.client(key, routing_id=b"worker 1").send_multipart([b"I am", b"worker 1"])
    time.sleep(0.5)
    client.send_multipart([b"after", BODY])
    assert reply(client) == [b"after", BODY]
    assert [message[0] for message in pair.received] == [b"before", b"after"]


class Relay:
    """Somebody on the way: passes bytes of lanes on, sees them all, and changes some."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, change: Callable[[bytes], bytes]) -> None:
        self.seen, self.connections, self._change = b"", 0, change
        real = socket.create_connection

        def through_relay(place: tuple[str, int], timeout: float) -> socket.socket:
            with socket.create_server(("127.0.0.1", 0)) as listener:
                near = real(listener.getsockname(), timeout=timeout)
                far, _ = listener.accept()
            server = real(place, timeout=timeout)
            self.connections += 1
            for source, sink, changed in ((far, server, True), (server, far, False)):
                threading.Thread(target=self._pass, args=(source, sink, changed), daemon=True).start()
            return near

        monkeypatch.setattr("phalanx.net.client_channel.sockets.create_connection", through_relay)

    def _pass(self, source: socket.socket, sink: socket.socket, changed: bool) -> None:
        try:
            while data := source.recv(1 << 16):
                self.seen += data
                sink.sendall(self._change(data) if changed else data)
        except OSError:
            pass
        source.close()
        sink.close()


@pytest.mark.parametrize("encrypt", [True, False])
def test_who_reads_the_network_sees_the_body_only_where_it_is_not_encrypted(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, encrypt: bool
) -> None:
    relay = Relay(monkeypatch, lambda data: data)
    client = pair.client(encrypt=encrypt)
    client.send_multipart([b"head", BODY])
    assert reply(client) == [b"head", BODY]
    assert (BODY[:64] in relay.seen) is not encrypt


@pytest.mark.parametrize("encrypt", [True, False])
def test_a_changed_message_is_never_taken_and_the_lane_opens_anew(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, encrypt: bool
) -> None:
    """What the relay of the review did: swap two words of a gradient, which leaves a plain sum as it was."""
    bad = 3

    def swap(data: bytes) -> bytes:
        nonlocal bad
        if bad == 0 or len(data) < 1000:
            return data
        bad -= 1
        return data[:64] + data[72:80] + data[64:72] + data[80:]

    relay = Relay(monkeypatch, swap)
    client = pair.client(encrypt=encrypt)

    def arrives() -> bool:
        """Protocols repeat what gets no reply."""
        client.send_multipart([b"head", BODY])
        for _ in range(10):
            client.poll(50)
            with suppress(zmq.Again):
                assert [bytes(frame.buffer) for frame in client.recv_multipart()] == [b"head", BODY]
                return True
        return False

    until(arrives)
    assert all(message == [b"head", BODY] for message in pair.received)
    assert relay.connections > 1


def _resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 1e6


@pytest.mark.parametrize("where", ["socket", "lane"])
def test_a_connection_without_the_key_makes_us_hold_little(pair: Pair, where: str) -> None:
    """Endless frames of a message that never ends, and a frame that is announced as large."""
    host, port = pair.server.address.removeprefix("tcp://").split(":")
    assert pair.server._lanes is not None
    place = (host, int(port) if where == "socket" else pair.server._lanes.port)
    greeting = b"\xff" + bytes(8) + b"\x7f\x03\x00NULL" + bytes(48)
    ready = b"\x04\x29\x05READY\x0bSocket-Type\x00\x00\x00\x06DEALER\x08Identity\x00\x00\x00\x00"
    curve = b"\xff" + bytes(8) + b"\x7f\x03\x00CURVE" + bytes(47)
    endless = b"\x03" + (60_000).to_bytes(8, "big") + bytes(60_000)
    announced = b"\x06" + (900 << 20).to_bytes(8, "big") + bytes(1 << 20)  # a command of 900 MB
    before = _resident_mb()
    for hello, part in ((greeting + ready, endless), (curve, endless), (curve, announced), (b"", bytes(1 << 20))):
        sent = 0
        with socket.create_connection(place, timeout=2) as stranger:
            try:
                stranger.sendall(hello)
                for _ in range(64):
                    stranger.sendall(part)
                    sent += len(part)
            except OSError:
                pass  # the server has ended the connection, or reads no more
        assert sent < 40 << 20, "it is cut off long before"
    assert _resident_mb() - before < 24
    client = pair.client()
    client.send_multipart([b"still", BODY])
    assert reply(client) == [b"still", BODY]


def test_many_connections_without_a_token_are_dropped(pair: Pair) -> None:
    assert pair.server._lanes is not None
    port = pair.server._lanes.port
    strangers = [socket.create_connection(("127.0.0.1", port)) for _ in range(100)]
    until(lambda: len(pair.server._lanes._unproven) <= 64)  # type: ignore[union-attr]
    client = pair.client()
    client.send_multipart([b"still", BODY])
    assert reply(client) == [b"still", BODY]
    for stranger in strangers:
        stranger.close()


def test_a_port_can_be_used_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A job that is started again in a narrow range of ports: the system keeps those of closed connections."""
    port = free_port("127.0.0.1")
    monkeypatch.setenv("PHALANX_PORT_RANGE", f"{port}-{port}")

    def serve() -> None:
        pair = Pair()
        client = pair.client()
        client.send_multipart([b"head", BODY])
        assert reply(client) == [b"head", BODY]
        lanes = pair.server._lanes
        assert lanes is not None
        assert lanes.port == port
        (lane,) = lanes._lanes.values()
        lanes._loop.call(lane.close)  # before the client: so its end is the one that the system keeps
        until(lambda: not lane.open)
        pair.close()

    serve()
    serve()


def test_a_lane_that_breaks_opens_anew(pair: Pair) -> None:
    client = pair.client()
    client.send_multipart([b"first", BODY])
    assert reply(client) == [b"first", BODY]
    lane = client._lane
    assert lane is not None
    lane._connection.shutdown(socket.SHUT_RDWR)
    until(lambda: client._lane is not lane)
    client.send_multipart([b"second", BODY])
    assert reply(client) == [b"second", BODY]


def test_a_lane_that_only_the_server_knows_to_be_broken_opens_anew(pair: Pair) -> None:
    """As after a cut network: the end that sent has given up, and the one that waits for a reply has heard nothing."""
    client = pair.client()
    client.send_multipart([b"first", BODY])
    assert reply(client) == [b"first", BODY]
    lane, lanes = client._lane, pair.server._lanes
    assert lanes is not None
    (identity,) = lanes._lanes
    del lanes._lanes[identity]
    with pytest.raises(zmq.ZMQError):
        pair.server.send_multipart([identity, b"lost", BODY])

    def renewed() -> bool:
        with contextlib.suppress(zmq.Again):
            client.recv_multipart()
        return client._lane not in (lane, None)

    until(renewed)
    client.send_multipart([b"second", BODY])
    assert reply(client) == [b"second", BODY]


def test_on_loopback_without_a_key_only_this_user_is_served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every user of a machine reaches its loopback."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "mine"))
    mine = key_for(["tcp://127.0.0.1:7000"], "")
    assert (tmp_path / "mine" / "phalanx" / "key").stat().st_mode & 0o077 == 0
    pair = Pair(key=mine)
    try:
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "another user's"))
        stranger = pair.client(key_for([pair.server.address], ""))
        stranger.send_multipart([b"let", b"me in"])
        assert not stranger.poll(700)
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "mine"))
        client = pair.client(key_for([pair.server.address], ""))
        client.send_multipart([b"it is", b"me"])
        assert reply(client) == [b"it is", b"me"]
        assert len(pair.received) == 1
    finally:
        pair.close()


@pytest.mark.parametrize(
    ("addresses", "key", "has_key"),
    [
        (["tcp://127.0.0.1:7000", "tcp://localhost:7001"], "", True),
        (["tcp://[::1]:7000"], "", True),
        (["tcp://127.0.0.1:7000", "tcp://10.0.0.1:7000"], "", False),  # no key that both hosts would have
        (["ipc:///run/x"], "", False),
        (["tcp://10.0.0.1:7000"], "given", True),
    ],
)
def test_which_key_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, addresses: list[str], key: str, has_key: bool
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert bool(found := key_for(addresses, key)) is has_key
    assert not key or found == key


def test_without_a_place_for_the_users_key_there_is_a_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    with pytest.raises(UserError, match="no place for a key") as caught:
        key_for(["tcp://127.0.0.1:7000"], "")
    assert "PHALANX_KEY" in caught.value.remedy


@pytest.mark.parametrize(
    ("setting", "address", "encrypted"),
    [
        ("on", "tcp://127.0.0.1:7000", True),
        ("off", "tcp://10.9.9.9:7000", False),
        ("auto", "tcp://127.0.0.1:7000", False),
        ("auto", "tcp://localhost:7000", False),
        ("auto", "tcp://10.9.9.9:7000", has_aes()),
        ("auto", "ipc:///run/x", False),
    ],
)
def test_what_is_encrypted(setting: Encrypt, address: str, encrypted: bool) -> None:
    assert encrypts(setting, address) is encrypted


def test_what_is_sent_over_a_lane_that_has_ended_is_done_with() -> None:
    loop, (sending, receiving) = LaneLoop(), (LaneCipher(bytes(KEY_BYTES), encrypt=True) for _ in range(2))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        connection = socket.create_connection(listener.getsockname())
        lane = Lane(loop, connection, sending, receiving, lambda frames: None, lambda lane: None)
        loop.close(lane.close)
        assert lane.send([b"late"]).done
        assert lane.sent
