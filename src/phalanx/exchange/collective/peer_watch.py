"""The workers of a collective job watch one another, and end together when one is lost."""

import contextlib
import json
import os
import sys
import threading
from urllib.parse import urlsplit

from phalanx.config.role import Role
from phalanx.errors import EXIT_REFORM, EXIT_USER, UserError
from phalanx.exchange.base import LostWorker
from phalanx.exchange.collective.connectivity import trainer_of
from phalanx.exchange.collective.gloo import listening_address, open_sockets, shut_down_connections
from phalanx.exchange.liveness import Listener, LivenessWatch, Peer
from phalanx.machine.ending import leave_ending
from phalanx.machine.processes import start_time
from phalanx.net.interfaces import LOOPBACK, is_loopback
from phalanx.net.waiting import Store, gather, here, say

_NEWS_S = 2.0  # for the watch to notice which worker is lost, after a collective has failed
_LEAVE_S = 60.0  # for the training thread to notice by itself: it may be saving a checkpoint


class PeerWatch:
    """The connections to the other workers. All workers make theirs at the same time, at the store."""

    def __init__(self, store: Store, role: Role, timeout_s: float, silence_s: float) -> None:
        self.aborts_nccl = False  # whether the process group is NCCL's
        self._before: set[str] | None = None
        self._must_leave = not role.elastic or role.launcher != "phalanx"
        self._code = EXIT_REFORM if role.elastic else EXIT_USER
        self._noticed = threading.Event()
        address = LOOPBACK if role.one_machine else listening_address()
        self._listener = Listener(address, role.key, silence_s, _known_ports(role))
        self._watch: LivenessWatch | None = None
        try:
            self._watch = LivenessWatch(
                role.name, self._others(store, role, timeout_s), silence_s, key=role.key, on_loss=self._leave
            )
            self._watch.await_all()
        except BaseException:
            self.close()  # zmq would wait for ever for sockets that stay open
            raise

    def _others(self, store: Store, role: Role, timeout_s: float) -> dict[str, Peer]:
        """The other workers, by the endpoint where each listens."""
        process = (os.getpid(), start_time(os.getpid()))
        store.set(f"liveness/{role.rank}", json.dumps([self._listener.endpoint, here(), process]))
        keys = [f"liveness/{rank}" for rank in range(role.world)]
        found = [json.loads(text) for text in gather(store, role.name, keys, timeout_s, trainer_of)]
        _refuse_loopback([(endpoint, host) for endpoint, host, _ in found])
        return {
            endpoint: Peer(
                f"trainer-{rank} on {host} ({endpoint.removeprefix('tcp://').rpartition(':')[0]})",
                f"trainer-{rank}",
                (process[0], process[1]) if host == here() else None,
            )
            for rank, (endpoint, host, process) in enumerate(found)
            if rank != role.rank
        }

    def before_connecting(self) -> None:
        """From now on all new connections are those of the process group."""
        self._before = open_sockets()

    def lost(self) -> LostWorker | None:
        """For the training thread: the loss of a worker, if one is lost."""
        loss = self._watch.lost() if self._watch is not None else None
        if loss is not None:
            self._noticed.set()
        return loss

    def known(self) -> LostWorker | None:
        """For the training thread, after a collective has failed: the lost worker, as far as is known."""
        self._noticed.set()
        return self._watch.lost(within_s=_NEWS_S) if self._watch is not None else None

    def close(self) -> None:
        """End the watch: from now on the end of a worker is no loss."""
        self._noticed.set()
        if self._watch is not None:
            self._watch.close()
        self._listener.close()

    def _leave(self, loss: LostWorker) -> None:
        """In the watch's thread: make the collective fail that the training thread is in, or the next one."""
        if self._before is not None:
            shut_down_connections(but=self._before)
        if self._must_leave:  # otherwise the launcher ends workers that do not save and end in time
            timer = threading.Timer(_LEAVE_S, self._end, [loss])
            timer.daemon = True
            timer.start()
        if self.aborts_nccl:  # or its kernels, and whoever waits for them, wait until the time limit
            abort_nccl()

    def _end(self, loss: LostWorker) -> None:
        """End the process: the training thread is in code that does not notice, and the job is over."""
        if not self._noticed.is_set():
            sys.stdout.flush()
            leave_ending(loss)
            say(f"error: {loss}")
            os._exit(self._code)


def abort_nccl() -> None:
    """Have NCCL's kernels end without a result. Whoever waited for them has to ask the watch."""
    import torch.distributed as dist

    # Not torch's `_abort_process_group`: it also forgets the group, and later calls would fail as mistakes of ours.
    if (group := dist.group.WORLD) is not None:
        with contextlib.suppress(RuntimeError):  # it may be on its way out
            group.abort()


def _refuse_loopback(found: list[tuple[str, str]]) -> None:
    """Refuse hosts that resolve their own name to a loopback address: others cannot reach them."""
    hosts = {host for _, host in found}
    for rank, (endpoint, host) in enumerate(found):
        if len(hosts) > 1 and is_loopback(urlsplit(endpoint).hostname or ""):
            raise UserError(
                f"trainer-{rank} on {host} cannot be reached from other hosts: it listens at {endpoint}",
                why=f"{host} resolves its own name to a loopback address",
                remedy="set GLOO_SOCKET_IFNAME to the network interface between the hosts, or correct /etc/hosts",
            )


def _known_ports(role: Role) -> set[int]:
    """Ports of the job's other processes, which may not listen yet."""
    places = [role.master, *role.servers, *role.data, *role.teachers]
    ports = [place.rpartition(":")[2] for place in places if not place.startswith("ipc:")]
    return {int(port) for port in ports if port.isdecimal()}
