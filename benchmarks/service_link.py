"""How much of a 1 Gbit/s link the data service fills: a server and a trainer in network namespaces of their own.

    python -m benchmarks.service_link [--batch 64] [--seconds 5] [--rounds 3]

Needs root and iproute2. The server's process namespace differs from the trainer's, so that they share no memory; images
are synthetic, so that the link is what limits. A plain TCP connection over the same link is measured beside it.
"""

import argparse
import json
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager

from phalanx.config.recipes import load_recipe
from phalanx.config.resolve import parse_override, resolve
from phalanx.data.service.client import Service
from phalanx.data.sources.open import open_data
from phalanx.data.training import training_pipeline
from phalanx.machine.settings import keep_freed_memory

SPACES = ("svc-server", "svc-trainer")
HOSTS = ("10.99.0.1", "10.99.0.2")
RATE = ("rate", "1gbit", "burst", "1mb", "latency", "50ms")
DATA = ("data.synthetic.samples=600", "data.synthetic.val_samples=20", "data.synthetic.classes=10")
SENDER = """
import socket
listener = socket.create_server(("10.99.0.1", 7301))
connection, _ = listener.accept()
try:
    while True:
        connection.sendall(bytes(1 << 20))
except OSError:
    pass
"""
RECEIVER = """
import socket, sys, time
connection, buffer, count = socket.create_connection(("10.99.0.1", 7301)), bytearray(1 << 20), 0
connection.recv_into(buffer)
begin = time.perf_counter()
while (elapsed := time.perf_counter() - begin) < float(sys.argv[1]):
    count += connection.recv_into(buffer)
print(count / elapsed)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--as-trainer", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.as_trainer:
        receive(arguments.batch, arguments.seconds, arguments.rounds)
        return
    with link(), ExitStack() as stack:
        os.environ["PHALANX_KEY"] = secrets.token_hex(16)
        words = ["phalanx", "serve-data", "synthetic", *DATA, "--bind", f"{HOSTS[0]}:7300"]
        apart = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
        server = stack.enter_context(started(0, [*apart, sys.executable, "-m", *words]))
        assert server.stdout is not None
        next(line for line in server.stdout if "serving" in line)
        _tell("plain TCP", plain(arguments.seconds))
        trainer = [sys.executable, "-m", "benchmarks.service_link", "--as-trainer", *sys.argv[1:]]
        with started(1, trainer) as process:
            assert process.stdout is not None
            for line in process.stdout:
                told = json.loads(line)
                _tell(f"data service, batch {arguments.batch}, {told['images']:.0f} images/s", told["bytes"])
        _tell("plain TCP", plain(arguments.seconds))


def receive(batch: int, seconds: float, rounds: int) -> None:
    """Be the trainer: bytes of pixels and images a second, as JSON lines."""
    keep_freed_memory()  # as trainers do
    config = resolve([*load_recipe("synthetic").layers, *map(parse_override, DATA)]).config
    source = open_data(config.data, threads=1).train
    service = Service({f"{HOSTS[0]}:7300": os.environ["PHALANX_KEY"]}, config)
    with closing(training_pipeline(config, source, batch=batch, threads=1, remote=service).stream()) as batches:
        for _ in range(4):
            next(batches)
        for _ in range(rounds):
            begin, num_bytes, images = time.perf_counter(), 0, 0
            while (elapsed := time.perf_counter() - begin) < seconds:
                made = next(batches)
                num_bytes += sum(micro.images.nbytes for micro in made.micro)
                images += made.total
            print(json.dumps({"bytes": num_bytes / elapsed, "images": images / elapsed}), flush=True)


def plain(seconds: float) -> float:
    with started(0, [sys.executable, "-c", SENDER]):
        time.sleep(1)
        with started(1, [sys.executable, "-c", RECEIVER, str(seconds)]) as receiver:
            return float(receiver.communicate()[0])


def _tell(what: str, rate: float) -> None:
    print(f"{what}: {rate / 1e6:.1f} MB/s, {8 * rate / 1e9:.3f} Gbit/s", flush=True)


@contextmanager
def started(space: int, words: list[str]) -> Iterator["subprocess.Popen[str]"]:
    process = subprocess.Popen(["ip", "netns", "exec", SPACES[space], *words], stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()  # unshare passes nothing gentler on
        process.wait()


@contextmanager
def link() -> Iterator[None]:
    """Two namespaces and a shaped cable between them, gone afterwards."""
    try:
        for space in SPACES:
            _ip("netns", "add", space)
        _ip("link", "add", "svc0", "netns", SPACES[0], "type", "veth", "peer", "name", "svc1", "netns", SPACES[1])
        for number, space in enumerate(SPACES):
            _ip("-n", space, "addr", "add", f"{HOSTS[number]}/24", "dev", f"svc{number}")
            _ip("-n", space, "link", "set", f"svc{number}", "up")
            _ip("netns", "exec", space, "tc", "qdisc", "add", "dev", f"svc{number}", "root", "tbf", *RATE)
        yield
    finally:
        for space in SPACES:
            subprocess.run(["ip", "netns", "del", space], check=False)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


if __name__ == "__main__":
    main()
