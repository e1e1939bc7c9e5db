"""Time in exchange for ResNet-50's 25.5 M gradients, 2 workers on this machine: gloo all-reduce beside pserver sync.

    .venv/bin/python benchmarks/exchange.py --rounds 20 --servers 1

The two take turns in the same processes, so that both meet the same neighbours. All-reduce is measured without the
update that would follow it; pserver is push, sum, update and pull. Medians over rounds of the slowest worker.
"""

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def parameters() -> list[tuple[int, ...]]:
    """The shapes of ResNet-50's parameters."""
    import torch
    from torchvision.models import resnet50

    with torch.device("meta"):
        return [tuple(param.shape) for param in resnet50().parameters()]


def worker(arguments: argparse.Namespace) -> None:
    """Alternate between the two; prints one JSON line with the seconds of each round."""
    import torch
    import torch.distributed as dist
    from torch import nn

    from phalanx.config.schema import ExchangeConfig, OptimConfig
    from phalanx.exchange.pserver.client import PserverExchange
    from phalanx.launch.dialects import role_from
    from phalanx.optim.schedule import Schedule
    from phalanx.optim.update import Update
    from phalanx.wire import memory

    role = role_from(os.environ)
    assert role is not None
    torch.set_num_threads(arguments.threads)
    if arguments.remote:
        memory.create = lambda size: memory.Area(torch.zeros(size, dtype=torch.uint8), None)
    dist.init_process_group("gloo", init_method=f"tcp://{role.master}", rank=role.rank, world_size=role.world)
    model = nn.ParameterList([torch.randn(shape) * 0.01 for shape in parameters()])
    gradients = [torch.randn_like(param) * 0.01 for param in model.parameters()]
    flat = torch.cat([gradient.flatten() for gradient in gradients])
    schedule = Schedule("constant", 0.01, 1000, 0, "linear", 0.0, (), 0.1, 2.0, 0.0)
    optim = OptimConfig()
    settings = ExchangeConfig(method="pserver", workers=role.world, mode=arguments.mode)
    exchange = PserverExchange(model, [], optim, schedule, settings, role)
    update = Update(dict(model.named_parameters()), [], optim, schedule)
    seconds: dict[str, list[float]] = {"all-reduce": [], "local update": [], "pserver": []}

    def give() -> None:
        for param, gradient in zip(model.parameters(), gradients, strict=True):
            param.grad = gradient

    for step in range(arguments.rounds + 2):
        dist.barrier()
        begin = time.perf_counter()
        dist.all_reduce(flat)
        seconds["all-reduce"].append(time.perf_counter() - begin)
        flat.mul_(0.5)
        give()
        dist.barrier()
        begin = time.perf_counter()
        update(step)
        seconds["local update"].append(time.perf_counter() - begin)
        dist.barrier()
        begin = time.perf_counter()
        exchange.apply(step)
        seconds["pserver"].append(time.perf_counter() - begin)
    exchange.close()
    print(json.dumps(seconds))
    dist.destroy_process_group()


def serve(arguments: argparse.Namespace) -> None:
    from phalanx.exchange.pserver.serve import serve
    from phalanx.launch.dialects import role_from

    role = role_from(os.environ)
    assert role is not None
    serve(role, threads=arguments.server_threads)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def start(kind: str, rank: int, world: int, servers: str, port: int) -> "subprocess.Popen[str]":
    environment = os.environ | {"PHALANX_ROLE": kind, "PHALANX_RANK": str(rank), "PHALANX_WORLD": str(world)}
    environment |= {"PHALANX_SERVERS": servers, "PHALANX_KEY": "bench", "MASTER_ADDR": "127.0.0.1"}
    environment |= {"MASTER_PORT": str(port)}
    command = [sys.executable, __file__, *sys.argv[1:], "--role", kind]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--servers", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1, help="of each worker")
    parser.add_argument("--server-threads", type=int, default=1)
    parser.add_argument("--mode", default="sync")
    parser.add_argument("--remote", action="store_true", help="send all bytes, as between machines")
    parser.add_argument("--role", choices=("trainer", "server"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.role == "server":
        return serve(arguments)
    if arguments.role == "trainer":
        return worker(arguments)
    with tempfile.TemporaryDirectory() as folder:
        addresses = [f"ipc://{Path(folder) / f'server-{number}'}" for number in range(arguments.servers)]
        if arguments.remote:
            addresses = [f"tcp://127.0.0.1:{free_port()}" for _ in addresses]
        servers, port = ",".join(addresses), free_port()
        processes = [start("server", rank, arguments.servers, servers, port) for rank in range(arguments.servers)]
        workers = [start("trainer", rank, arguments.workers, servers, port) for rank in range(arguments.workers)]
        told = [json.loads(process.communicate()[0]) for process in workers]
        for process in processes:
            process.wait()
    # A round ends when its slowest worker has its parameters; the first two rounds fault memory in.
    medians = {
        name: statistics.median([max(round_) for round_ in zip(*(each[name] for each in told), strict=True)][2:])
        for name in told[0]
    }
    bar = medians["all-reduce"]
    print("| 25.5 M float32, 2 workers | ms | of all-reduce |\n| --- | --- | --- |")
    for name, median in medians.items():
        print(f"| {name} | {1000 * median:.0f} | {median / bar:.2f}× |")
    return None


if __name__ == "__main__":
    main()
