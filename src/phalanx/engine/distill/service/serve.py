"""The main of a teacher process: compute logits for trainers until a signal ends it."""

import signal
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import zmq
from zmq.utils.monitor import recv_monitor_message

from phalanx.data.service.journal import Journal
from phalanx.engine.distill.service.logits_worker import FinishedTask, LoadTeachers, LogitsWorker
from phalanx.engine.distill.service.server import Server
from phalanx.net.handover import Handover
from phalanx.net.poll_loop import PollLoop, drain, stop_on
from phalanx.net.server_channel import ServerChannel

_LINGER_MS = 500  # for the last logits to be sent
_OPTIONS = {
    # Disconnect a trainer whose process is stopped, or whose host is down: that frees what waits for it.
    zmq.HEARTBEAT_IVL: 5_000,
    zmq.HEARTBEAT_TIMEOUT: 30_000,
}


def serve(
    load: LoadTeachers,
    about: str,
    address: str,
    key: str,
    *,
    encrypt: bool = False,
    log: Path | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> None:
    """Compute logits for trainers that connect to `address`, until SIGTERM or SIGINT. `say` prints.

    `load` loads the teachers when a trainer has said what to compute with, and refuses one that expects others; `about`
    names them.
    """
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    channel = ServerChannel(
        context, address, key, "the teacher", harm="use the teachers", encrypt=encrypt, options=_OPTIONS
    )
    monitor = channel.socket.get_monitor_socket(zmq.EVENT_DISCONNECTED)
    journal = Journal(log, say)
    with ExitStack() as stack:  # what is entered last is left first
        finished = Handover[FinishedTask]()
        stack.callback(finished.close)
        stack.callback(context.destroy, linger=_LINGER_MS)
        stack.callback(channel.close, _LINGER_MS / 1000)
        stack.callback(channel.socket.disable_monitor)
        stack.callback(journal.close)
        worker = LogitsWorker(load, finished.put)
        stack.callback(worker.close)
        server = Server(channel, worker, journal)
        stop = stack.enter_context(stop_on(signal.SIGTERM, signal.SIGINT))
        journal.note("start", f"serving {about} at {channel.address}", address=channel.address)
        loop = PollLoop(server.tick)
        channel.watch(loop, partial(drain, channel, server.handle))
        loop.add(monitor, lambda: server.disconnected(int(recv_monitor_message(monitor)["value"])))
        loop.add(finished.reader, lambda: finished.drain(server.finish))
        while not stop:
            loop.turn()
        server.tick()  # what was done since the last one
