"""Before the first step: the store of a collective job, and whether its hosts reach one another as gloo will."""

import contextlib
import json
import os
import secrets
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path

import torch.distributed as dist

from phalanx.config.role import Role
from phalanx.errors import UserError
from phalanx.exchange.collective.gloo import listening_address
from phalanx.net.listeners import REACH, note_listener
from phalanx.net.store import FILE, SealedStore, join_tcp_store, open_file_store, serve_tcp_store
from phalanx.net.waiting import Store, await_listener, connect_failure, gather, here

_CONNECT_S = 15.0  # for a connection to a process that listens
_SYSTEM_PORTS = Path("/proc/sys/net/ipv4/ip_local_port_range")


@dataclass(frozen=True)
class _Place:
    """Where a worker's gloo would listen, and a token that shows that it is this worker."""

    name: str
    host: str
    address: str
    port: int
    token: str

    @property
    def at(self) -> str:
        return f"[{self.address}]:{self.port}" if ":" in self.address else f"{self.address}:{self.port}"


def open_store(role: Role, timeout_s: float) -> SealedStore:
    """The store where workers exchange settings and addresses: at rank 0, unless torchrun has one itself."""
    host, _, port = role.master.rpartition(":")
    if role.master.startswith(FILE):
        return SealedStore(open_file_store(role.master, timeout_s), role.key, port)
    host = host.strip("[]")
    if role.launcher == "torchrun" and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        if role.rank > 0:
            await_listener(role.name, "torchrun", host, int(port), timeout_s)
        # Only the environment says where it is. It outlives the workers: a prefix hides what an earlier attempt has
        # put there.
        timeout = timedelta(seconds=timeout_s)
        rendezvous = dist.rendezvous("env://", role.rank, role.world, timeout=timeout)  # type: ignore[attr-defined]
        prefix = f"phalanx/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}"
        store = dist.PrefixStore(prefix, next(iter(rendezvous))[0])  # type: ignore[attr-defined]
        return SealedStore(store, role.key, f"{port}/{prefix}")
    if role.rank == 0:
        store = serve_tcp_store(host, int(port), role.name, timeout_s, one_machine=role.one_machine)
    else:
        store = join_tcp_store(host, int(port), role.name, "trainer-0", timeout_s)
    return SealedStore(store, role.key, port)


def check_reachable(store: Store, role: Role, timeout_s: float) -> None:
    """Connect each pair of hosts, both ways, as gloo will: it listens at a port that the system gives it.

    All workers call this, and all raise the same error. They may start late; then each has half a minute to connect.
    """
    if role.one_machine:
        return
    listener, place = _listen(role)
    with listener:
        store.set(f"reach/{role.rank}", json.dumps(asdict(place)))
        found = gather(store, role.name, [f"reach/{rank}" for rank in range(role.world)], timeout_s, trainer_of)
        firsts: dict[tuple[str, str], tuple[int, _Place]] = {}  # by host: its first worker stands for all
        for rank, text in enumerate(found):
            other = _Place(**json.loads(text))
            firsts.setdefault((other.host, other.address), (rank, other))
        others = [other for _, other in firsts.values() if other != place]
        if (role.rank, place) in firsts.values():
            store.set(f"reached/{role.rank}", json.dumps(_failures(place, others)))
        keys = [f"reached/{rank}" for rank, _ in firsts.values()]
        closed = [one for text in gather(store, role.name, keys, timeout_s, trainer_of) for one in json.loads(text)]
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)  # a thread that accepts would keep it open
    if closed:
        raise _unreachable(closed)


def trainer_of(key: str) -> str:
    """The worker behind a key of the store, which ends with its rank."""
    return f"trainer-{key.rpartition('/')[2]}"


def _listen(role: Role) -> tuple[socket.socket, _Place]:
    address = listening_address()
    listener = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
    listener.bind((address, 0))
    listener.listen(1024)
    token = secrets.token_hex(8)

    def answer() -> None:
        with contextlib.suppress(OSError):  # it is closed when all have tried
            while True:
                connection, _ = listener.accept()
                with connection, contextlib.suppress(OSError):
                    connection.sendall(token.encode())

    threading.Thread(target=answer, name="phalanx-reach", daemon=True).start()
    place = _Place(role.name, here(), address, listener.getsockname()[1], token)
    note_listener(REACH, place.at)
    return listener, place


def _failures(place: _Place, others: list[_Place]) -> list[tuple[str, str]]:
    """(which worker cannot reach which, why), for each of the others that this one cannot reach."""
    if not others:
        return []
    with ThreadPoolExecutor(min(64, len(others))) as pool:
        whys = list(pool.map(_try, others))
    me = f"{place.name} on {place.host} ({place.address})"
    pairs = zip(others, whys, strict=True)
    return [(f"{me} cannot reach {one.name} on {one.host} at {one.at}", why) for one, why in pairs if why]


def _try(other: _Place) -> str:
    try:
        with socket.create_connection((other.address, other.port), timeout=_CONNECT_S) as connection:
            received = connection.recv(len(other.token), socket.MSG_WAITALL)
    except TimeoutError as error:
        return connect_failure(error)
    except ConnectionRefusedError:
        return "connection refused, although it listens there"
    except OSError as error:
        return error.strerror or str(error)
    return "" if received.decode(errors="replace") == other.token else "another process answers there"


def _unreachable(closed: list[tuple[str, str]]) -> UserError:
    what, why = closed[0]
    more = f" (and {len(closed) - 1} more pairs of hosts)" if len(closed) > 1 else ""
    ports = "-".join(_SYSTEM_PORTS.read_text().split()) if _SYSTEM_PORTS.exists() else "49152-65535"
    return UserError(
        f"{what}{more}",
        why=f"{why}; gloo, which adds up the gradients, listens at any port of net.ipv4.ip_local_port_range, "
        "and cannot be limited to --port-range",
        remedy=f"open the ports {ports} between the hosts; or --update-method pserver, which keeps to --port-range",
    )
