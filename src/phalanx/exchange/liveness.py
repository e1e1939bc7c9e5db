"""Which processes of a job are alive: a connection to each, with heartbeats that a thread of zmq's own sends.

That thread runs no Python, so a step that takes minutes is no silence. A process whose connection breaks, and does not
come back within a few seconds, has ended; one that is silent for `silence_s` is unreachable, crashed or frozen. No
messages are sent over these connections, so other processes cannot send any either. Where the job has a key, both ends
prove it (CURVE, with keys that are derived from it).
"""

import contextlib
import socket as sockets
import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from enum import Enum
from hashlib import blake2b
from ipaddress import ip_address
from urllib.parse import urlsplit

import zmq
from zmq.utils.monitor import recv_monitor_message

from phalanx.config.role import Role
from phalanx.config.schema import ExchangeConfig
from phalanx.errors import UserError
from phalanx.exchange.base import LostWorker
from phalanx.exchange.own_silence import OwnSilence
from phalanx.machine.process_state import hindrance
from phalanx.machine.processes import start_time
from phalanx.net.curve import needs_curve, secure_client, secure_server
from phalanx.net.interfaces import candidate_ports
from phalanx.net.key import key_for
from phalanx.net.listeners import HEARTBEAT, note_listener
from phalanx.net.waiting import Patience, connect_failure, here

CONNECT_S = 30.0  # for a process that is known to listen
_LOOK_S = 0.5
_PROBE_S = 1.0  # for a connection that shows why a process is gone
_REFUSED_S = 5.0  # of refused connections, after which the other end has another key, and is not just starting
_EVENTS = zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL | zmq.EVENT_DISCONNECTED
_MAX_BYTES = 1024  # that others may send: handshakes, and nothing else

Context = zmq.Context[zmq.Socket[bytes]]


def grace_s(silence_s: float) -> float:
    """How long a connection that broke may take to come back."""
    return silence_s / 6


def heartbeats(silence_s: float) -> dict[zmq.SocketOption, int]:
    """Options that close a connection after nine to ten beats of silence. Two more, `grace_s`, are to connect again.

    So nobody is taken for lost before eleven twelfths of `silence_s`: where the last beat falls is chance, and who was
    stopped for less than that is to go on.
    """
    beat_ms = max(1, int(1000 * silence_s / 12))
    # While the network is cut, the kernel waits longer and longer before it tries to connect again: start it anew.
    connect_ms = max(1000, 2 * beat_ms)
    return {zmq.HEARTBEAT_IVL: beat_ms, zmq.HEARTBEAT_TIMEOUT: 9 * beat_ms, zmq.CONNECT_TIMEOUT: connect_ms}


def presence_id(key: str, rank: int) -> bytes:
    """The identity of the connection by which a server knows that a worker is alive. Only the key gives it."""
    return b"here" + blake2b(f"{rank}".encode(), key=_digest(key), digest_size=16).digest()


def _digest(key: str) -> bytes:
    return blake2b(b"phalanx liveness " + key.encode(), digest_size=32).digest()


def watch_servers(role: Role, exchange: ExchangeConfig) -> "LivenessWatch":
    """A worker's watch over the parameter servers. From now on they know by it that the worker is alive."""
    peers = {
        address: Peer(f"parameter server {number} at {address}", f"server-{number}")
        for number, address in enumerate(role.servers)
    }
    key = key_for(role.servers, role.key)
    known_by = presence_id(key, role.rank)
    return LivenessWatch(
        role.name, peers, exchange.silence_s, key=key, routing_id=known_by, timeout_s=exchange.timeout_s
    )


class Listener:
    """The socket by which other workers of a collective job see whether this one is alive."""

    def __init__(self, address: str, key: str, silence_s: float, taken: Collection[int] = ()) -> None:
        self.context: Context = zmq.Context()
        self._socket: zmq.Socket[bytes] = self.context.socket(zmq.ROUTER)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.setsockopt(zmq.RCVHWM, 1)
        self._socket.setsockopt(zmq.MAXMSGSIZE, _MAX_BYTES)
        self._socket.setsockopt(zmq.IPV6, ":" in address)
        for option, value in heartbeats(silence_s).items():
            self._socket.setsockopt(option, value)
        secure_server(self._socket, f"tcp://{address}", key)
        self.endpoint = self._bind(f"[{address}]" if ":" in address else address, taken)

    def _bind(self, host: str, taken: Collection[int]) -> str:
        ports = candidate_ports(taken)
        for port in ports:
            with contextlib.suppress(zmq.ZMQError):
                self._socket.bind(f"tcp://{host}:{port}")
                endpoint = self._socket.getsockopt_string(zmq.LAST_ENDPOINT)
                note_listener(HEARTBEAT, endpoint)
                return endpoint
        raise UserError(
            f"there is no free port at {host}",
            why=f"all {len(ports)} that may be used are taken",
            remedy="give a wider --port-range (PHALANX_PORT_RANGE), or leave it out",
        )

    def close(self) -> None:
        self._socket.close(linger=0)
        self.context.term()


class Ending(Enum):
    """What became of a process that is lost."""

    ENDED = "its process has ended: connections to it are refused"
    SILENT = "its host is there, but the process has given no sign of life for {silence_s:g} s"
    UNREACHABLE = "no sign of life for {silence_s:g} s: its host or the network between is down"


@dataclass(frozen=True)
class Peer:
    """A process to watch: its name in messages, its role, and where it is on this machine its pid and start time."""

    name: str
    role: str = ""
    process: tuple[int, int | None] | None = None

    @property
    def hindrance(self) -> str:
        """What keeps it from running, where this machine can tell."""
        if self.process is None or start_time(self.process[0]) != self.process[1]:
            return ""
        return hindrance(self.process[0])


@dataclass
class _Watched:
    """A process that is watched, and the state of the connection to it."""

    peer: Peer
    up: bool = False
    ever: bool = False
    down_s: float = 0.0  # since its connection broke, without the time in which this process was stopped
    lost: bool = False
    refused_since: float | None = None  # when it first refused the key, unless it has accepted it since


class LivenessWatch:
    """Connections to processes (by endpoint), and which of those are lost.

    `on_loss` is called once, in the watch's thread. `routing_id` is the identity of this connection for the others.
    With `timeout_s` the watch prints every so often which process is missing, until all have been there once; the
    caller ends the wait.
    """

    def __init__(
        self,
        me: str,
        watched: Mapping[str, Peer],
        silence_s: float,
        *,
        key: str = "",
        routing_id: bytes = b"",
        timeout_s: float | None = None,
        on_loss: Callable[[LostWorker], None] | None = None,
    ) -> None:
        self._me, self.silence_s, self._on_loss = me, silence_s, on_loss
        self._watched = {_resolved(endpoint): _Watched(peer) for endpoint, peer in watched.items()}
        self.own_silence = OwnSilence(me, silence_s, 2 * _LOOK_S)
        self._endpoints = {endpoint: _resolved(endpoint) for endpoint in watched}
        self._broken: list[str] = []  # endpoints whose connection broke, the first one first
        self._changed = threading.Condition()
        self._closing = False
        self._announces = Patience(timeout_s) if timeout_s is not None else None
        self._context: Context = zmq.Context()
        self._socket: zmq.Socket[bytes] = self._context.socket(zmq.DEALER)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.setsockopt(zmq.IPV6, any("[" in endpoint for endpoint in self._watched))
        for option, value in heartbeats(silence_s).items():
            self._socket.setsockopt(option, value)
        if routing_id:
            self._socket.setsockopt(zmq.ROUTING_ID, routing_id)
        self._monitor = self._socket.get_monitor_socket(_EVENTS)
        # A socket's security holds for the connections that follow: first those that need none.
        for endpoint in sorted(self._watched, key=lambda each: needs_curve(each, key)):
            secure_client(self._socket, endpoint, key)
            self._socket.connect(endpoint)
        self._thread = threading.Thread(target=self._run, name="phalanx-liveness", daemon=True)
        self._thread.start()

    def await_all(self, timeout_s: float = CONNECT_S) -> None:
        """Wait until all are connected; all of them listen already. Raises for one that cannot be reached."""
        deadline = time.monotonic() + timeout_s
        with self._changed:
            while missing := [endpoint for endpoint, process in self._watched.items() if not process.ever]:
                left = deadline - time.monotonic()
                if left <= 0:
                    break
                self._changed.wait(left)
        if missing:
            raise UserError(
                f"{self._me} on {here()} cannot connect to {self._watched[missing[0]].peer.name} at {missing[0]}",
                why=f"{_state(missing[0])}, for {timeout_s:g} s",
                remedy="open that port between the hosts (--port-range says which are used); "
                "all processes need the same PHALANX_KEY",
            )

    def lost(self, endpoint: str | None = None, within_s: float = 0.0) -> LostWorker | None:
        """The loss of the process that was lost first, or of the one at `endpoint`.

        With `within_s` it waits so long for news, and a broken connection is enough: the caller knows already that
        something is wrong.
        """
        wanted = None if endpoint is None else self._endpoints[endpoint]
        deadline = time.monotonic() + within_s
        with self._changed:
            while True:
                found = [one for one in self._broken if wanted in (None, one)]
                confirmed = [one for one in found if self._watched[one].lost]
                left = deadline - time.monotonic()
                if confirmed or left <= 0 or (within_s and found):
                    break
                self._changed.wait(left)
        chosen = confirmed or (found if within_s else [])
        if within_s and not chosen:
            return self.own_silence.loss()
        return self._loss(chosen[0]) if chosen else None

    def ending(self, endpoint: str) -> Ending:
        """What became of a process that is lost."""
        return _ending(self._endpoints[endpoint])

    def expect(self, endpoint: str) -> None:
        """It has replied on another connection: so it is alive, whether or not this one is connected yet."""
        with self._changed:
            endpoint = self._endpoints[endpoint]
            process = self._watched[endpoint]
            if not process.ever and not process.up:
                self._broken.append(endpoint)
            process.ever = True

    def is_up(self, endpoint: str) -> bool:
        return self._watched[self._endpoints[endpoint]].up

    def has_another_key(self, endpoint: str) -> bool:
        """Whether a process listens there that refuses this job's key."""
        since = self._watched[self._endpoints[endpoint]].refused_since
        return since is not None and time.monotonic() - since > _REFUSED_S

    def close(self) -> None:
        """End the watch: from now on the end of a process is no loss."""
        self._closing = True
        if self._thread is not threading.current_thread():
            self._thread.join(10 * _LOOK_S)

    def _loss(self, endpoint: str) -> LostWorker:
        peer = self._watched[endpoint].peer
        hindered = peer.hindrance
        return self.own_silence.loss() or LostWorker(
            f"{peer.name} {hindered or 'is gone or silent'}",
            why=(Ending.SILENT if hindered else _ending(endpoint)).value.format(silence_s=self.silence_s),
            remedy="see its last lines, in logs/ of the run's folder; then go on with --resume",
            lost=peer.role,
        )

    def _run(self) -> None:
        poller = zmq.Poller()
        poller.register(self._monitor, zmq.POLLIN)
        poller.register(self._socket, zmq.POLLIN)
        while not self._closing:
            poller.poll(int(1000 * _LOOK_S))
            passed_s = self.own_silence.look()  # first: what is received may follow from it
            self._receive()
            self._count(passed_s)
            self._announce()
        self._socket.disable_monitor()
        self._monitor.close(linger=0)
        self._socket.close(linger=0)
        self._context.term()

    def _receive(self) -> None:
        with contextlib.suppress(zmq.Again):
            while True:
                self._socket.recv(zmq.NOBLOCK)  # a server checks whether this worker is alive
        while self._monitor.poll(0):
            event = recv_monitor_message(self._monitor)
            endpoint = event["endpoint"].decode()
            process = self._watched.get(endpoint)
            if process is None:
                continue
            if event["event"] == zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL:
                process.refused_since = process.refused_since or time.monotonic()
                continue
            with self._changed:
                process.up = event["event"] == zmq.EVENT_HANDSHAKE_SUCCEEDED
                if process.up:
                    process.refused_since = None
                    process.ever, process.down_s = True, 0.0
                    if endpoint in self._broken:
                        self._broken.remove(endpoint)
                elif process.ever and endpoint not in self._broken:
                    self._broken.append(endpoint)
                self._changed.notify_all()

    def _count(self, passed_s: float) -> None:
        news = None
        with self._changed:
            for endpoint in self._broken:
                process = self._watched[endpoint]
                process.down_s += passed_s
                if not process.lost and process.down_s >= grace_s(self.silence_s):
                    process.lost = True
                    news = news or endpoint
                    self._changed.notify_all()
        if news is not None and self._on_loss is not None:
            on_loss, self._on_loss = self._on_loss, None
            on_loss(self._loss(news))

    def _announce(self) -> None:
        if self._announces is None or not self._announces.due:
            return
        missing = [endpoint for endpoint, process in self._watched.items() if not process.ever]
        if not missing:
            self._announces = None
            return
        name = self._watched[missing[0]].peer.name
        self._announces.report(f"{self._me} on {here()} waits for {name}: {_state(missing[0])}")


def _state(endpoint: str) -> str:
    """Why a process cannot be connected to, as far as the system says."""
    error = _connect(endpoint)
    if error is not None:
        return connect_failure(error)
    return "a process listens there, and does not answer as one of this job"


def _ending(endpoint: str) -> Ending:
    """What happened to a process that was alive."""
    error = _connect(endpoint)
    if error is None or (endpoint.startswith("ipc:") and isinstance(error, TimeoutError | BlockingIOError)):
        return Ending.SILENT
    if isinstance(error, ConnectionRefusedError | FileNotFoundError):
        return Ending.ENDED
    return Ending.UNREACHABLE


def _connect(endpoint: str) -> OSError | None:
    parts = urlsplit(endpoint)
    try:
        if parts.scheme != "tcp":
            with sockets.socket(sockets.AF_UNIX) as connection:
                connection.settimeout(_PROBE_S)
                connection.connect(endpoint.removeprefix("ipc://"))
                return None
        with sockets.create_connection((parts.hostname or "", parts.port or 0), timeout=_PROBE_S):
            return None
    except OSError as error:
        return error


def _resolved(endpoint: str) -> str:
    """With an address instead of a name, as in zmq's events."""
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
