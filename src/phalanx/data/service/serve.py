"""The main of a data server: bind, make what trainers lease until somebody ends it."""

import os
import signal
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import torch
import zmq
from zmq.utils.monitor import recv_monitor_message

from phalanx.data.pipeline import Pipeline
from phalanx.data.service.batch_workers import BatchWorkers, Done
from phalanx.data.service.journal import Journal
from phalanx.data.service.server import Server
from phalanx.data.service.terms import Terms
from phalanx.data.service.wire import MAX_REQUEST_BYTES, Seal
from phalanx.net.bind import listen
from phalanx.signals import handle

_TICK_MS = 500
_LEAVING_MS = 20  # between looks at whether pixels have left
_BURST = 64  # messages between looks at the clock
_FAREWELL_MS = 500
_OPTIONS = {
    zmq.MAXMSGSIZE: MAX_REQUEST_BYTES,
    # A trainer whose process is stopped, or whose host is gone, is hung up on, which frees what waits for it.
    zmq.HEARTBEAT_IVL: 5_000,
    zmq.HEARTBEAT_TIMEOUT: 30_000,
}


def serve(
    pipeline: Pipeline,
    terms: Terms,
    address: str,
    key: str,
    *,
    log: Path | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> None:
    """Make batches of this pipeline for trainers that come to `address`, until SIGTERM or SIGINT. `say` prints."""
    torch.set_num_threads(1)
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    socket = listen(context, address, key, "the data server", harm="read the training data", options=_OPTIONS)
    monitor = socket.get_monitor_socket(zmq.EVENT_DISCONNECTED)
    journal = Journal(log, say)
    stopping = False

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal stopping
        stopping = True

    before = {number: handle(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    bell, rope = os.pipe()  # a maker that has finished pulls the rope
    finished: deque[Done] = deque()

    def ring(done: Done) -> None:
        finished.append(done)
        os.write(rope, b".")

    with pipeline.pixel_pool() as pool:
        makers = BatchWorkers(pipeline, pool, ring)
        server = Server(socket, Seal(key), makers, terms, journal)
        there = socket.getsockopt_string(zmq.LAST_ENDPOINT)
        journal.note("start", f"serving {pipeline.source.description} at {there}", address=there)
        poller = zmq.Poller()
        for each in (socket, monitor, bell):
            poller.register(each, zmq.POLLIN)
        next_tick = time.monotonic()
        try:
            while not stopping:
                ready = dict(poller.poll(_LEAVING_MS if server.leaving else _TICK_MS))
                if socket in ready:
                    _drain(socket, server)
                if monitor in ready:
                    server.hung_up(int(recv_monitor_message(monitor)["value"]))
                if bell in ready:
                    for _ in os.read(bell, _BURST):
                        server.finish(finished.popleft())
                if server.leaving or time.monotonic() >= next_tick:
                    server.tick()
                    next_tick = time.monotonic() + _TICK_MS / 1000
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            makers.close()
            server.close()
            journal.close()
            socket.disable_monitor()
            context.destroy(linger=_FAREWELL_MS)
            os.close(bell)
            os.close(rope)


def _drain(socket: "zmq.Socket[bytes]", server: Server) -> None:
    for _ in range(_BURST):
        try:
            frames = socket.recv_multipart(zmq.NOBLOCK, copy=False)
        except zmq.Again:
            return
        server.handle(frames)
