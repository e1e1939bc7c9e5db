"""The trainers of a collective job watch one another, and leave together when one is lost."""

import json
import os
import sys
import threading
from urllib.parse import urlsplit

from phalanx.config.role import Role
from phalanx.errors import EXIT_USER, UserError
from phalanx.exchange.base import LostWorker
from phalanx.exchange.collective.connectivity import trainer_of
from phalanx.exchange.collective.gloo import listening_address, open_sockets, shut_down_connections
from phalanx.exchange.liveness import Listener, LivenessWatch
from phalanx.net.interfaces import is_loopback
from phalanx.net.waiting import Store, gather, here, say

_NEWS_S = 2.0  # for word of who is lost, when gloo has found out that somebody is
_LEAVE_S = 60.0  # for the training thread to find out by itself: it may be saving a checkpoint


class PeerWatch:
    """The other trainers. Made by all of them at once, when they have met at the store."""

    def __init__(self, store: Store, role: Role, timeout_s: float, silence_s: float) -> None:
        self._before: set[str] | None = None
        self._elastic = role.elastic
        self._noticed = threading.Event()
        address = "127.0.0.1" if role.local_world == role.world else listening_address()
        self._listener = Listener(address, role.key, silence_s, _known_ports(role))
        self._watch: LivenessWatch | None = None
        try:
            self._watch = LivenessWatch(
                role.name, self._others(store, role, timeout_s), silence_s, key=role.key, on_loss=self._leave
            )
            self._watch.await_all()
        except BaseException:
            self.close()  # zmq would wait for ever for sockets that nobody closes
            raise

    def _others(self, store: Store, role: Role, timeout_s: float) -> dict[str, str]:
        """By the place where each of them listens: who it is, for messages."""
        store.set(f"liveness/{role.rank}", json.dumps([self._listener.endpoint, here()]))
        keys = [f"liveness/{rank}" for rank in range(role.world)]
        found = [json.loads(told) for told in gather(store, role.name, keys, timeout_s, trainer_of)]
        _refuse_loopback(found)
        return {
            endpoint: f"trainer-{rank} on {host} ({endpoint.removeprefix('tcp://').rpartition(':')[0]})"
            for rank, (endpoint, host) in enumerate(found)
            if rank != role.rank
        }

    def before_connecting(self) -> None:
        """All connections that are made from now on are those of the group."""
        self._before = open_sockets()

    def lost(self) -> LostWorker | None:
        """Who is, if anybody."""
        return self._watch.lost() if self._watch is not None else None

    def known(self) -> LostWorker | None:
        """For the training thread, whom the group has failed: who is lost, as far as can be told."""
        self._noticed.set()
        return self._watch.lost(within_s=_NEWS_S) if self._watch is not None else None

    def close(self) -> None:
        """All have come to their end; that they leave is no loss."""
        self._noticed.set()
        if self._watch is not None:
            self._watch.close()
        self._listener.close()

    def _leave(self, loss: LostWorker) -> None:
        """In the watching thread: have the training thread leave the collective that it is in, or the next one."""
        if self._before is not None:
            shut_down_connections(but=self._before)
        if not self._elastic:  # whose launcher ends who does not save and leave in time
            timer = threading.Timer(_LEAVE_S, self._end, [loss])
            timer.daemon = True
            timer.start()

    def _end(self, loss: LostWorker) -> None:
        """The training thread is somewhere where it cannot be told; the job is over all the same."""
        if not self._noticed.is_set():
            sys.stdout.flush()
            say(f"error: {loss}")
            os._exit(EXIT_USER)


def _refuse_loopback(found: list[tuple[str, str]]) -> None:
    """Hosts that take their own name for a loopback address cannot be reached from others."""
    hosts = {host for _, host in found}
    for rank, (endpoint, host) in enumerate(found):
        if len(hosts) > 1 and is_loopback(urlsplit(endpoint).hostname or ""):
            raise UserError(
                f"trainer-{rank} on {host} cannot be reached from other hosts: it listens at {endpoint}",
                why=f"{host} takes its own name for a loopback address",
                remedy="set GLOO_SOCKET_IFNAME to the network interface between the hosts, or mend /etc/hosts",
            )


def _known_ports(role: Role) -> set[int]:
    """Ports of the job's other listeners, which may not listen yet."""
    places = [role.master, *role.servers, *role.data]
    ports = [place.rpartition(":")[2] for place in places if not place.startswith("ipc:")]
    return {int(port) for port in ports if port.isdecimal()}
