"""The main of a data server: make the batches that trainers lease, until a signal ends it."""

import signal
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import torch
import zmq
from zmq.utils.monitor import recv_monitor_message

from phalanx.data.pipeline import Pipeline
from phalanx.data.service.batch_workers import BatchWorkers, FinishedBatch
from phalanx.data.service.journal import Journal
from phalanx.data.service.server import Server
from phalanx.data.service.terms import Terms
from phalanx.net.handover import Handover
from phalanx.net.poll_loop import TICK_S, PollLoop, drain, stop_on
from phalanx.net.server_channel import ServerChannel

_SENDING_S = 0.02  # between looks at whether pixels were sent
_LINGER_MS = 500  # for the last batches to be sent
_OPTIONS = {
    # Disconnect a trainer whose process is stopped, or whose host is down: that frees what waits for it.
    zmq.HEARTBEAT_IVL: 5_000,
    zmq.HEARTBEAT_TIMEOUT: 30_000,
}


def serve(
    pipeline: Pipeline,
    terms: Terms,
    address: str,
    key: str,
    *,
    encrypt: bool = False,
    log: Path | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> None:
    """Make batches of this pipeline for trainers that connect to `address`, until SIGTERM or SIGINT. `say` prints."""
    torch.set_num_threads(1)
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    channel = ServerChannel(
        context, address, key, "the data server", harm="read the training data", encrypt=encrypt, options=_OPTIONS
    )
    socket = channel.socket
    monitor = socket.get_monitor_socket(zmq.EVENT_DISCONNECTED)
    journal = Journal(log, say)
    with ExitStack() as stack:  # what is entered last is left first
        finished = Handover[FinishedBatch]()
        stack.callback(finished.close)
        stack.callback(context.destroy, linger=_LINGER_MS)
        stack.callback(channel.close, _LINGER_MS / 1000)
        pool = stack.enter_context(pipeline.pixel_pool())
        stack.callback(socket.disable_monitor)
        stack.callback(journal.close)
        batch_workers = BatchWorkers(pipeline, pool, finished.put)
        server = Server(channel, batch_workers, terms, journal)
        stack.callback(server.close)
        stack.callback(batch_workers.close)
        bound = channel.address
        stop = stack.enter_context(stop_on(signal.SIGTERM, signal.SIGINT))
        journal.note("start", f"serving {pipeline.source.description} at {bound}", address=bound)
        loop = PollLoop(server.tick)
        channel.watch(loop, partial(drain, channel, server.handle))
        loop.add(monitor, lambda: server.disconnected(int(recv_monitor_message(monitor)["value"])))
        loop.add(finished.reader, lambda: finished.drain(server.finish))
        while not stop:
            loop.turn(_SENDING_S if server.sending else TICK_S, tick=server.sending)
