"""What a launcher leaves open is found when all processes meet: the place itself, ranks, the servers' addresses.

MPICH's ranks learn the place through mpiexec. At that place one process keeps a store (torch's TCPStore): the scheduler
of a DMLC job, trainer 0 otherwise. Servers publish their addresses there, and everybody takes them. That a trainer is
one of the job's is proven by the job's key when it joins a server. A job without one takes a key from the store, and
the addresses that its processes come from (`admission` says what that is worth).
"""

import os
import secrets
import socket
import time
from dataclasses import replace
from datetime import timedelta
from urllib.parse import urlsplit

from phalanx.config.role import UNRANKED, AllowedHosts, Environment, Role
from phalanx.config.schema import ExchangeConfig
from phalanx.errors import UserError
from phalanx.launch.env import pmi
from phalanx.launch.env.assign_role import assign_role
from phalanx.launch.env.attendance import attend, open_attendance
from phalanx.net.admission import refuse_unnamed
from phalanx.net.interfaces import address_towards, bind_gloo_towards, free_port, interface_address, is_loopback
from phalanx.net.waiting import Patience, Store, await_listener, gather

_LOOK_S = 0.05  # between looks at how many have come
_LOOK_AGAIN_S = 0.5  # for a name
_OWN_KEY = "own"  # what a store holds instead of a key where the job has one of its own


def complete(role: Role, exchange: ExchangeConfig, environment: Environment = os.environ) -> Role:
    """The same role with nothing left open. All processes of the job must call this."""
    if role.launcher == "phalanx":
        return role
    if role.launcher == "mpiexec" and not role.master:
        role = replace(role, master=pmi.share(_place(role, environment), role.rank, environment))
    if role.launcher == "kubernetes":
        _await_names(role, exchange.timeout_s)
    role = assign_role(role, exchange)
    _refuse_misfit(role, exchange)
    if exchange.method == "pserver":
        role = role if all(role.servers) else _meet(role, exchange.timeout_s, environment)
        refuse_unnamed(role)
        return _bindable(role)
    bind_gloo_towards(_host(role.master))
    return role


def _place(role: Role, environment: Environment) -> str:
    """Where rank 0 has the others meet it: on this host alone, or by the name that mpiexec knows this host by."""
    if role.local_world == role.world:
        return f"127.0.0.1:{free_port('127.0.0.1')}"
    host = environment.get("MASTER_ADDR") or environment.get("MPIR_CVAR_CH3_INTERFACE_HOSTNAME")
    interface = environment.get("MPIR_CVAR_NEMESIS_TCP_NETWORK_IFACE")
    return f"{host or (interface and interface_address(interface)) or socket.gethostname()}:{free_port('0.0.0.0')}"


def _await_names(role: Role, timeout_s: float) -> None:
    """A pod's name is known a while after the pod has started; whoever looks for it is started at the same time."""
    places = [_host(role.master), *(urlsplit(address).hostname or "" for address in role.servers)]
    deadline = time.monotonic() + timeout_s
    for host in places if not role.servers else places[1:]:
        while True:
            try:
                socket.getaddrinfo(host, None)
                break
            except socket.gaierror as error:
                if time.monotonic() > deadline:
                    raise UserError(
                        f"the name {host} is not known after {timeout_s:g} s",
                        why=error.strerror or str(error),
                        remedy="see whether that pod was started: kubectl get pods; and whether the Service exists",
                    ) from error
            time.sleep(_LOOK_AGAIN_S)


def _refuse_misfit(role: Role, exchange: ExchangeConfig) -> None:
    if role.kind != "trainer" and exchange.method != "pserver":
        raise UserError(
            f"{role.launcher} started this process as a {role.kind}, but the update method is {exchange.method}",
            why="only pserver has servers",
            remedy="--update-method pserver, or start trainers only",
        )


def _meet(role: Role, timeout_s: float, environment: Environment) -> Role:
    """Take a rank where there is none yet, tell the own address, learn those of all others."""
    keeper = role.kind == "scheduler" or (role.launcher != "DMLC" and role.kind == "trainer" and role.rank == 0)
    expected = role.world if role.kind == "scheduler" else role.world + len(role.servers)
    try:
        store = _store(role, keeper, timeout_s)
        if keeper:
            store.set("key", _OWN_KEY if role.key else secrets.token_hex(32))
        if role.kind == "scheduler":
            store.set("attendance", str(open_attendance(_host(role.master))))
        else:
            role = _introduced(role, store, environment, timeout_s)
        if keeper:
            _share_hosts(role, store, expected, timeout_s)
        role = _acquainted(role, store)
        if role.kind != "scheduler":
            if role.launcher == "DMLC":
                attend(role, _host(role.master), int(store.get("attendance")))
            store.add("met", 1)
        if keeper:
            _await_all(role, store, "met", expected, timeout_s)
    except (RuntimeError, OSError) as error:
        raise UserError(
            f"{role.name} did not meet the others at {role.master}",
            why=str(error).split("\n")[0][:300],
            remedy="check that all processes of the job were started, and that nobody else uses that port",
        ) from error
    return role


def _store(role: Role, keeper: bool, timeout_s: float) -> Store:
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    port = int(role.master.rpartition(":")[2])
    timeout = timedelta(seconds=timeout_s)
    if not keeper:
        first = "the scheduler" if role.launcher == "DMLC" else "trainer-0"
        await_listener(role.name, first, _host(role.master), port, timeout_s)
    store: Store = TCPStore(_host(role.master), port, is_master=keeper, timeout=timeout, wait_for_workers=False)
    return store


def _host(place: str) -> str:
    return place.rpartition(":")[0].strip("[]")


def _introduced(role: Role, store: Store, environment: Environment, timeout_s: float) -> Role:
    """Servers tell where they listen; then everybody tells the addresses by which servers will see it."""
    role = _ranked(role, store)
    if role.kind == "server":
        store.set(f"server/{role.rank}", _listening_address(role, environment))
    keys = [f"server/{number}" for number in range(len(role.servers))]
    listening = gather(store, role.name, keys, timeout_s, lambda key: key.replace("/", "-"))
    servers = [each.decode() for each in listening]
    mine = {address_towards(urlsplit(server).hostname or "") for server in servers}
    store.set(f"from/{store.add('told', 1) - 1}", ",".join(sorted(mine)))
    return replace(role, servers=tuple(servers))


def _share_hosts(role: Role, store: Store, expected: int, timeout_s: float) -> None:
    _await_all(role, store, "told", expected, timeout_s)
    told = [store.get(f"from/{number}").decode().split(",") for number in range(expected)]
    store.set("hosts", ",".join(sorted(set().union(*told))))


def _acquainted(role: Role, store: Store) -> Role:
    """With the hosts of a job that has no key of its own, and the key that its processes take instead."""
    key = store.get("key").decode()
    if bool(role.key) != (key == _OWN_KEY):
        theirs, mine = ("a key", "none") if key == _OWN_KEY else ("none", "a key")
        raise UserError(
            f"of the processes that meet at {role.master} some have {theirs}, and {role.name} has {mine}",
            why="PHALANX_KEY_FILE (or PHALANX_KEY) is set for a part of the job only",
            remedy="set it for all of them, or for none",
        )
    allowed_hosts = AllowedHosts(tuple(store.get("hosts").decode().split(",")))
    if key == _OWN_KEY:
        return role if role.kind != "scheduler" else replace(role, allowed_hosts=allowed_hosts)
    return replace(role, key=key, allowed_hosts=allowed_hosts)


def _ranked(role: Role, store: Store) -> Role:
    rank = role.rank if role.rank != UNRANKED else store.add(f"ranks/{role.kind}", 1) - 1
    if rank >= role.world or store.add(f"taken/{role.kind}/{rank}", 1) > 1:
        raise UserError(
            f"one {role.kind} too many came to {role.master}",
            why=f"the job has {role.world}, and rank {rank} is taken",
            remedy="end what is left of an earlier job, or use another port for this one",
        )
    return replace(role, rank=rank)


def _listening_address(role: Role, environment: Environment) -> str:
    """As ps-lite finds it, and otherwise the address on the way to where all meet."""
    interface = environment.get("DMLC_INTERFACE")
    host = environment.get("DMLC_NODE_HOST") or (interface and interface_address(interface))
    host = host or address_towards(_host(role.master))
    address = f"[{host}]" if ":" in host else host
    return f"tcp://{address}:{free_port(host)}"


def _await_all(role: Role, store: Store, counted: str, expected: int, timeout_s: float) -> None:
    """The store is kept until everybody has taken what is in it."""
    patience = Patience(timeout_s)
    while (came := store.add(counted, 0)) < expected:
        if patience.over:
            raise RuntimeError(f"{came} of {expected} processes came within {timeout_s:g} s")
        if patience.due:
            patience.word(f"{role.name} at {role.master} waits for {expected - came} of {expected} processes")
        time.sleep(_LOOK_S)


def _bindable(role: Role) -> Role:
    """A server listens at an address, not at a name; and where its own name means loopback here, at all of them."""
    if role.kind != "server":
        return role
    parts = urlsplit(role.servers[role.rank])
    host = parts.hostname or ""
    address = address_towards(host)
    if is_loopback(address) and not is_loopback(host):
        address = "0.0.0.0"
    at = f"tcp://{f'[{address}]' if ':' in address else address}:{parts.port}"
    return replace(role, servers=(*role.servers[: role.rank], at, *role.servers[role.rank + 1 :]))
