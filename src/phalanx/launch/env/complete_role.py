"""The rendezvous of processes that another launcher started: it completes roles with ranks and servers' addresses.

One process hosts a store (torch's TCPStore): the scheduler of a DMLC job, otherwise trainer 0. MPICH's ranks get its
address through mpiexec. Servers publish their addresses in the store, and all processes read them. When a trainer joins
a server, it proves with the job's key that it belongs to the job. A job without a key gets one from the store, with the
addresses of its processes (`net/admission.py` says what that protects from).
"""

import os
import secrets
import socket
import time
from dataclasses import replace
from urllib.parse import urlsplit

from phalanx.config.role import UNRANKED, AllowedHosts, Environment, Role
from phalanx.config.schema import ExchangeConfig
from phalanx.errors import UserError
from phalanx.launch.env import dmlc_scheduler, pmi
from phalanx.launch.env.assign_role import assign_role
from phalanx.net.admission import refuse_unnamed
from phalanx.net.interfaces import address_towards, bind_gloo_towards, free_port, interface_address, is_loopback
from phalanx.net.store import SealedStore, join_tcp_store, serve_tcp_store
from phalanx.net.waiting import Patience, Store, gather

_POLL_S = 0.05  # between looks at the number of processes
_RESOLVE_S = 0.5  # between tries to resolve a name
_OWN_KEY = "own"  # in the store instead of a key, if the job has its own


def complete(role: Role, exchange: ExchangeConfig, environment: Environment = os.environ) -> Role:
    """The complete role. All processes of the job must call this."""
    if role.launcher == "phalanx":
        return role
    if role.launcher == "mpiexec" and not role.master:
        role = replace(role, master=pmi.broadcast(_master_address(role, environment), role.rank, environment))
    if role.launcher == "kubernetes":
        _await_names(role, exchange.timeout_s)
    role = assign_role(role, exchange)
    _refuse_wrong_kind(role, exchange)
    if exchange.method == "pserver":
        role = role if all(role.servers) else _rendezvous(role, exchange.timeout_s, environment)
        refuse_unnamed(role)
        return _bindable(role)
    bind_gloo_towards(_host(role.master), one_machine=role.one_machine)
    return role


def _master_address(role: Role, environment: Environment) -> str:
    """Rank 0's address for the rendezvous: loopback on one host, otherwise the name that mpiexec has for this host."""
    if role.one_machine:
        return f"127.0.0.1:{free_port('127.0.0.1')}"
    host = environment.get("MASTER_ADDR") or environment.get("MPIR_CVAR_CH3_INTERFACE_HOSTNAME")
    interface = environment.get("MPIR_CVAR_NEMESIS_TCP_NETWORK_IFACE")
    return f"{host or (interface and interface_address(interface)) or socket.gethostname()}:{free_port('0.0.0.0')}"


def _await_names(role: Role, timeout_s: float) -> None:
    """Wait until the other pods' names resolve, which takes a while after they start."""
    hosts = [_host(role.master), *(urlsplit(address).hostname or "" for address in role.servers)]
    deadline = time.monotonic() + timeout_s
    for host in hosts if not role.servers else hosts[1:]:
        while True:
            try:
                socket.getaddrinfo(host, None)
                break
            except socket.gaierror as error:
                if time.monotonic() > deadline:
                    raise UserError(
                        f"the name {host} does not resolve after {timeout_s:g} s",
                        why=error.strerror or str(error),
                        remedy="check that the pod has started (kubectl get pods) and that the Service exists",
                    ) from error
            time.sleep(_RESOLVE_S)


def _refuse_wrong_kind(role: Role, exchange: ExchangeConfig) -> None:
    if role.kind != "trainer" and exchange.method != "pserver":
        raise UserError(
            f"{role.launcher} started this process as a {role.kind}, but the update method is {exchange.method}",
            why="only pserver has servers",
            remedy="--update-method pserver, or start trainers only",
        )


def _rendezvous(role: Role, timeout_s: float, environment: Environment) -> Role:
    """Get a rank if there is none, publish our address, and get the others'."""
    hosts_store = role.kind == "scheduler" or (role.launcher != "DMLC" and role.kind == "trainer" and role.rank == 0)
    expected = role.world if role.kind == "scheduler" else role.world + len(role.servers)
    try:
        store = _store(role, hosts_store, timeout_s)
        if hosts_store:
            # Before a process knows whether the others have a key, it can prove nothing.
            store.plain.set("key", _OWN_KEY if role.key else secrets.token_hex(32))
        key = _shared_key(role, store)
        if role.kind == "scheduler":
            store.set("scheduler port", str(dmlc_scheduler.open_listener(_host(role.master))))
        else:
            role = _publish(role, store, environment, timeout_s)
        if hosts_store:
            _share_hosts(role, store, expected, timeout_s)
        role = _with_key(role, key, store)
        if role.kind != "scheduler":
            if role.launcher == "DMLC":
                dmlc_scheduler.connect(role, _host(role.master), int(store.get("scheduler port")))
            store.add("complete", 1)
        if hosts_store:
            _await_all(role, store, "complete", expected, timeout_s)
    except (RuntimeError, OSError) as error:
        raise UserError(
            f"{role.name} could not connect to the others at {role.master}",
            why=str(error).split("\n")[0][:300],
            remedy="check that all processes of the job have started, and that no other program uses that port",
        ) from error
    return role


def _store(role: Role, hosts_store: bool, timeout_s: float) -> SealedStore:
    host, port = _host(role.master), role.master.rpartition(":")[2]
    if hosts_store:
        store = serve_tcp_store(host, int(port), role.name, timeout_s, one_machine=False)
    else:
        first = "the scheduler" if role.launcher == "DMLC" else "trainer-0"
        store = join_tcp_store(host, int(port), role.name, first, timeout_s)
    return SealedStore(store, role.key, port)


def _host(address: str) -> str:
    return address.rpartition(":")[0].strip("[]")


def _publish(role: Role, store: Store, environment: Environment, timeout_s: float) -> Role:
    """Servers publish their addresses; then all processes publish the addresses that they connect from."""
    role = _with_rank(role, store)
    if role.kind == "server":
        store.set(f"server/{role.rank}", _listening_address(role, environment))
    keys = [f"server/{number}" for number in range(len(role.servers))]
    listening = gather(store, role.name, keys, timeout_s, lambda key: key.replace("/", "-"))
    servers = [each.decode() for each in listening]
    mine = {address_towards(urlsplit(server).hostname or "") for server in servers}
    store.set(f"from/{store.add('published', 1) - 1}", ",".join(sorted(mine)))
    return replace(role, servers=tuple(servers))


def _share_hosts(role: Role, store: Store, expected: int, timeout_s: float) -> None:
    _await_all(role, store, "published", expected, timeout_s)
    sources = [store.get(f"from/{number}").decode().split(",") for number in range(expected)]
    store.set("hosts", ",".join(sorted(set().union(*sources))))


def _shared_key(role: Role, store: SealedStore) -> str:
    """The key that the process with the store has made; _OWN_KEY where the job has its own."""
    key = bytes(store.plain.get("key")).decode()
    if bool(role.key) != (key == _OWN_KEY):
        theirs, mine = ("a key", "none") if key == _OWN_KEY else ("none", "a key")
        raise UserError(
            f"some processes at {role.master} have {theirs}, and {role.name} has {mine}",
            why="PHALANX_KEY_FILE (or PHALANX_KEY) is set for a part of the job only",
            remedy="set it for all of them, or for none",
        )
    return key


def _with_key(role: Role, key: str, store: Store) -> Role:
    """Add the job's hosts, and the key from the store if the job has none of its own."""
    allowed_hosts = AllowedHosts(tuple(store.get("hosts").decode().split(",")))
    if key == _OWN_KEY:
        return role if role.kind != "scheduler" else replace(role, allowed_hosts=allowed_hosts)
    return replace(role, key=key, allowed_hosts=allowed_hosts)


def _with_rank(role: Role, store: Store) -> Role:
    rank = role.rank if role.rank != UNRANKED else store.add(f"ranks/{role.kind}", 1) - 1
    if rank >= role.world or store.add(f"taken/{role.kind}/{rank}", 1) > 1:
        raise UserError(
            f"one {role.kind} too many at {role.master}",
            why=f"the job has {role.world}, and rank {rank} is taken",
            remedy="end the processes of an earlier job, or use another port for this one",
        )
    return replace(role, rank=rank)


def _listening_address(role: Role, environment: Environment) -> str:
    """As in ps-lite; otherwise this host's address on the route to the rendezvous."""
    interface = environment.get("DMLC_INTERFACE")
    host = environment.get("DMLC_NODE_HOST") or (interface and interface_address(interface))
    host = host or address_towards(_host(role.master))
    address = f"[{host}]" if ":" in host else host
    return f"tcp://{address}:{free_port(host)}"


def _await_all(role: Role, store: Store, counted: str, expected: int, timeout_s: float) -> None:
    """The store is kept until everybody has taken what is in it."""
    patience = Patience(timeout_s)
    while (count := store.add(counted, 0)) < expected:
        if patience.over:
            raise RuntimeError(f"{count} of {expected} processes connected within {timeout_s:g} s")
        if patience.due:
            patience.report(f"{role.name} at {role.master} waits for {expected - count} of {expected} processes")
        time.sleep(_POLL_S)


def _bindable(role: Role) -> Role:
    """The address that a server binds: its own name resolved, or all interfaces if that is loopback here."""
    if role.kind != "server":
        return role
    parts = urlsplit(role.servers[role.rank])
    host = parts.hostname or ""
    address = address_towards(host)
    if is_loopback(address) and not is_loopback(host):
        address = "0.0.0.0"
    endpoint = f"tcp://{f'[{address}]' if ':' in address else address}:{parts.port}"
    return replace(role, servers=(*role.servers[: role.rank], endpoint, *role.servers[role.rank + 1 :]))
