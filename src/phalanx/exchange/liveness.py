"""Who is still there: a connection to each peer, which zmq keeps alive with heartbeats from a thread of its own.

That thread needs nothing of Python, so a step that takes minutes is no silence. A peer whose connection is gone, and
does not come back within a few seconds, has ended; one that is silent for `silence_s` is cut off, crashed or frozen.
Nothing is said over these connections, so there is nothing that a stranger could say. Where the job has a key, both
ends prove it (CURVE, with keys that are made from it).
"""

import contextlib
import socket as sockets
import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from ipaddress import ip_address
from urllib.parse import urlsplit

import zmq
from zmq.utils import z85
from zmq.utils.monitor import recv_monitor_message

from phalanx.config.role import Role
from phalanx.config.schema import ExchangeConfig
from phalanx.errors import UserError
from phalanx.exchange.base import LostWorker
from phalanx.net.interfaces import candidate_ports
from phalanx.net.waiting import Patience, here, told

CONNECT_S = 30.0  # for a peer that is known to listen
_LOOK_S = 0.5
_ASK_S = 1.0  # for the system's word on why a peer is gone
_EVENTS = zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED
_MAX_BYTES = 1024  # of what strangers may send: handshakes, and nothing else

Context = zmq.Context[zmq.Socket[bytes]]


def grace_s(silence_s: float) -> float:
    """How long a connection that broke may take to come back."""
    return silence_s / 6


def heartbeats(silence_s: float) -> dict[zmq.SocketOption, int]:
    """Options that close a silent connection: a beat, four beats without an answer, and one to connect anew."""
    beat_ms = max(1, int(1000 * silence_s / 6))
    return {zmq.HEARTBEAT_IVL: beat_ms, zmq.HEARTBEAT_TIMEOUT: 4 * beat_ms}


def presence_id(key: str, rank: int) -> bytes:
    """By what name a server knows the connection that says that a worker is there. Only who has the key can have it."""
    return b"here" + blake2b(f"{rank}".encode(), key=_digest(key), digest_size=16).digest()


def _digest(key: str) -> bytes:
    return blake2b(b"phalanx liveness " + key.encode(), digest_size=32).digest()


def watch_servers(role: Role, exchange: ExchangeConfig) -> "LivenessWatch":
    """A worker's watch over the parameter servers; and they know from it that the worker is there, from now on."""
    names = {address: f"parameter server {number} at {address}" for number, address in enumerate(role.servers)}
    known_by = presence_id(role.key, role.rank)
    return LivenessWatch(role.name, names, exchange.silence_s, routing_id=known_by, timeout_s=exchange.timeout_s)


class Listener:
    """Where other workers of a collective job find out whether this one is there."""

    def __init__(self, address: str, key: str, silence_s: float, taken: Collection[int] = ()) -> None:
        self.context: Context = zmq.Context()
        self._socket: zmq.Socket[bytes] = self.context.socket(zmq.ROUTER)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.setsockopt(zmq.RCVHWM, 1)
        self._socket.setsockopt(zmq.MAXMSGSIZE, _MAX_BYTES)
        self._socket.setsockopt(zmq.IPV6, ":" in address)
        for option, value in heartbeats(silence_s).items():
            self._socket.setsockopt(option, value)
        if key:
            self._socket.setsockopt(zmq.CURVE_SERVER, True)
            self._socket.setsockopt(zmq.CURVE_SECRETKEY, z85.encode(_digest(key)))
        self.endpoint = self._bind(f"[{address}]" if ":" in address else address, taken)

    def _bind(self, host: str, taken: Collection[int]) -> str:
        ports = candidate_ports(taken)
        for port in ports:
            with contextlib.suppress(zmq.ZMQError):
                self._socket.bind(f"tcp://{host}:{port}")
                return self._socket.getsockopt_string(zmq.LAST_ENDPOINT)
        raise UserError(
            f"there is no free port at {host}",
            why=f"all {len(ports)} that may be used are taken",
            remedy="give a wider --port-range (PHALANX_PORT_RANGE), or leave it out",
        )

    def close(self) -> None:
        self._socket.close(linger=0)
        self.context.term()


@dataclass
class _Peer:
    name: str
    up: bool = False
    ever: bool = False
    down_s: float = 0.0  # since its connection broke, as far as this process was awake to see it
    lost: bool = False


class LivenessWatch:
    """Connections to all peers ({endpoint: name}), and who of them is lost. `on_loss` is called once, in its thread.

    `routing_id` is how peers know this connection. With `timeout_s`, which somebody else keeps to, it says every so
    often who is waited for while not all have been there.
    """

    def __init__(
        self,
        me: str,
        peers: Mapping[str, str],
        silence_s: float,
        *,
        key: str = "",
        routing_id: bytes = b"",
        timeout_s: float | None = None,
        on_loss: Callable[[LostWorker], None] | None = None,
    ) -> None:
        self._me, self.silence_s, self._on_loss = me, silence_s, on_loss
        self._peers = {_resolved(endpoint): _Peer(name) for endpoint, name in peers.items()}
        self._endpoints = {endpoint: _resolved(endpoint) for endpoint in peers}
        self._broken: list[str] = []  # endpoints whose connection broke, the first one first
        self._changed = threading.Condition()
        self._closing = False
        self._announces = Patience(timeout_s) if timeout_s is not None else None
        self._context: Context = zmq.Context()
        self._socket: zmq.Socket[bytes] = self._context.socket(zmq.DEALER)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.setsockopt(zmq.IPV6, any("[" in endpoint for endpoint in self._peers))
        for option, value in heartbeats(silence_s).items():
            self._socket.setsockopt(option, value)
        if routing_id:
            self._socket.setsockopt(zmq.ROUTING_ID, routing_id)
        if key:
            public, secret = zmq.curve_keypair()
            self._socket.setsockopt(zmq.CURVE_SERVERKEY, zmq.curve_public(z85.encode(_digest(key))))
            self._socket.setsockopt(zmq.CURVE_PUBLICKEY, public)
            self._socket.setsockopt(zmq.CURVE_SECRETKEY, secret)
        self._monitor = self._socket.get_monitor_socket(_EVENTS)
        for endpoint in self._peers:
            self._socket.connect(endpoint)
        self._thread = threading.Thread(target=self._run, name="phalanx-liveness", daemon=True)
        self._thread.start()

    def await_all(self, timeout_s: float = CONNECT_S) -> None:
        """Until all are connected; all of them listen already. Raises who could not be reached."""
        deadline = time.monotonic() + timeout_s
        with self._changed:
            while missing := [endpoint for endpoint, peer in self._peers.items() if not peer.ever]:
                left = deadline - time.monotonic()
                if left <= 0:
                    break
                self._changed.wait(left)
        if missing:
            raise UserError(
                f"{self._me} on {here()} cannot connect to {self._peers[missing[0]].name} at {missing[0]}",
                why=f"{_state(missing[0])}, for {timeout_s:g} s",
                remedy="open that port between the hosts (--port-range says which are used); "
                "all processes need the same PHALANX_KEY",
            )

    def lost(self, endpoint: str | None = None, within_s: float = 0.0) -> LostWorker | None:
        """What happened to the peer that was lost first, or to this one. `within_s`: wait for news, and take an
        unconfirmed one: the caller knows already that something is wrong."""
        wanted = None if endpoint is None else self._endpoints[endpoint]
        deadline = time.monotonic() + within_s
        with self._changed:
            while True:
                found = [one for one in self._broken if wanted in (None, one)]
                confirmed = [one for one in found if self._peers[one].lost]
                left = deadline - time.monotonic()
                if confirmed or left <= 0 or (within_s and found):
                    break
                self._changed.wait(left)
        chosen = confirmed or (found if within_s else [])
        return self._loss(chosen[0]) if chosen else None

    def expect(self, endpoint: str) -> None:
        """It has answered elsewhere: so it is there, whether or not it is connected to yet."""
        with self._changed:
            endpoint = self._endpoints[endpoint]
            peer = self._peers[endpoint]
            if not peer.ever and not peer.up:
                self._broken.append(endpoint)
            peer.ever = True

    def is_up(self, endpoint: str) -> bool:
        return self._peers[self._endpoints[endpoint]].up

    def close(self) -> None:
        """From now on nobody's end is a loss."""
        self._closing = True
        if self._thread is not threading.current_thread():
            self._thread.join(10 * _LOOK_S)

    def _loss(self, endpoint: str) -> LostWorker:
        return LostWorker(
            f"{self._peers[endpoint].name} is gone or silent",
            why=_ending(endpoint, self.silence_s),
            remedy="see what it said last, in logs/ of the run's folder; then go on with --resume",
        )

    def _run(self) -> None:
        before = time.monotonic()
        poller = zmq.Poller()
        poller.register(self._monitor, zmq.POLLIN)
        poller.register(self._socket, zmq.POLLIN)
        while not self._closing:
            poller.poll(int(1000 * _LOOK_S))
            self._hear()
            now = time.monotonic()
            # A process that was stopped, and goes on, has not heard anybody meanwhile: that says nothing of them.
            self._count(min(now - before, 2 * _LOOK_S))
            before = now
            self._announce()
        self._socket.disable_monitor()
        self._monitor.close(linger=0)
        self._socket.close(linger=0)
        self._context.term()

    def _hear(self) -> None:
        with contextlib.suppress(zmq.Again):
            while True:
                self._socket.recv(zmq.NOBLOCK)  # a server's look at whether this one is there
        while self._monitor.poll(0):
            event = recv_monitor_message(self._monitor)
            endpoint = event["endpoint"].decode()
            peer = self._peers.get(endpoint)
            if peer is None:
                continue
            with self._changed:
                peer.up = event["event"] == zmq.EVENT_HANDSHAKE_SUCCEEDED
                if peer.up:
                    peer.ever, peer.down_s = True, 0.0
                    if endpoint in self._broken:
                        self._broken.remove(endpoint)
                elif peer.ever and endpoint not in self._broken:
                    self._broken.append(endpoint)
                self._changed.notify_all()

    def _count(self, passed_s: float) -> None:
        news = None
        with self._changed:
            for endpoint in self._broken:
                peer = self._peers[endpoint]
                peer.down_s += passed_s
                if not peer.lost and peer.down_s >= grace_s(self.silence_s):
                    peer.lost = True
                    news = news or endpoint
                    self._changed.notify_all()
        if news is not None and self._on_loss is not None:
            on_loss, self._on_loss = self._on_loss, None
            on_loss(self._loss(news))

    def _announce(self) -> None:
        if self._announces is None or not self._announces.due:
            return
        missing = [endpoint for endpoint, peer in self._peers.items() if not peer.ever]
        if not missing:
            self._announces = None
            return
        self._announces.word(f"{self._me} on {here()} waits for {self._peers[missing[0]].name}: {_state(missing[0])}")


def _state(endpoint: str) -> str:
    """Why somebody cannot be connected to, as far as the system tells."""
    error = _connect(endpoint)
    return told(error) if error is not None else "somebody listens there, and does not answer as a process of this job"


def _ending(endpoint: str, silence_s: float) -> str:
    """What became of somebody who was there."""
    if endpoint.startswith("ipc:"):
        return "its process has ended"
    error = _connect(endpoint)
    if error is None:
        return f"its host is there, but the process has given no sign of life for {silence_s:g} s"
    if isinstance(error, ConnectionRefusedError):
        return "its process has ended: connections to it are refused"
    return f"no sign of life for {silence_s:g} s: its host or the network between is down"


def _connect(endpoint: str) -> OSError | None:
    parts = urlsplit(endpoint)
    if parts.scheme != "tcp":
        return None
    try:
        with sockets.create_connection((parts.hostname or "", parts.port or 0), timeout=_ASK_S):
            return None
    except OSError as error:
        return error


def _resolved(endpoint: str) -> str:
    """With an address instead of a name, as zmq tells of it."""
    parts = urlsplit(endpoint)
    if parts.scheme != "tcp":
        return endpoint
    try:
        found = sockets.getaddrinfo(parts.hostname, parts.port, type=sockets.SOCK_STREAM)
    except OSError:
        return endpoint
    family, _, _, _, place = min(found, key=lambda one: one[0] != sockets.AF_INET)  # as zmq does
    host, port = ip_address(place[0]), parts.port
    return f"tcp://[{host}]:{port}" if family == sockets.AF_INET6 else f"tcp://{host}:{port}"
