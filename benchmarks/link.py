"""What compression saves on a link: steps that are nothing but the exchange of ResNet-50's gradients.

    python -m benchmarks.link [--rates 1Gbit,10Gbit] [--steps 3] [--cases all|plain]

Needs root, Debian's openssh-server and iproute2. Two workers and a parameter server, each on a host of the lab (a
network namespace) whose link has that rate in each direction. Nothing is computed: the gradients are ready at once, so
this isolates the link. A real step hides a part of it behind backward.

Prints Markdown: milliseconds of a step, the speed-up over no compression by the same method, and the share of the link
that the busiest one used. That is the server's for pserver, and each worker's for collective.
"""

import argparse
import json
import os
import secrets
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from phalanx.bench.comm_worker import SCHEDULE, TIMEOUT_S
from phalanx.config.role import Role, environment_of
from phalanx.config.schema import ExchangeConfig, ModelConfig, OptimConfig
from phalanx.exchange.base import Exchange
from phalanx.exchange.collective.exchange import collective_exchange
from phalanx.exchange.collective.group import join_group, leave_group
from phalanx.exchange.compress.spec import parse_compression
from phalanx.exchange.pserver.exchange import pserver_exchange
from phalanx.exchange.rendezvous import StoreRendezvous
from phalanx.launch.env.roles import role_from_env
from phalanx.machine.settings import keep_freed_memory
from phalanx.models.build import build_model
from phalanx.optim.update import Update
from phalanx.plan.units import parse_rate

WORKERS = 2
FIRST_PORT = 7300
COLLECTIVE = [("collective", codec, "none") for codec in ("none", "fp16", "2bit", "1bit", "topk:0.01", "powersgd:4")]
PSERVER = [
    ("pserver", "none", "none"),
    *(("pserver", codec, pull) for codec in ("fp16", "2bit", "1bit", "topk:0.01") for pull in ("none", "fp16")),
]
CASES = {"all": [*COLLECTIVE, *PSERVER], "plain": [COLLECTIVE[0], PSERVER[0]]}


class Ready(nn.Module):
    """ResNet-50's parameters, whose gradients backward has at once."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        model = build_model(ModelConfig(name="resnet50"), num_classes=1000, channels=3, image_size=224)
        for name, param in model.named_parameters():
            self.register_parameter(name.replace(".", "_"), nn.Parameter(param.detach().clone()))
        self.gradients = [0.01 * torch.randn_like(param) for param in self.parameters()]

    def forward(self, images: Tensor) -> Tensor:
        del images
        return _Ready.apply(self.gradients, *self.parameters())  # type: ignore[no-any-return]


class _Ready(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, gradients: list[Tensor], *params: Tensor) -> Tensor:
        ctx.gradients = gradients
        return params[0].new_zeros(())

    @staticmethod
    def backward(ctx: Any, scale: Tensor) -> Any:
        return None, *ctx.gradients


def work(cases: list[tuple[str, str, str]], steps: int, role: Role) -> None:
    """A worker: each case in turn. Prints its seconds and bytes by step, as JSON lines."""
    torch.set_num_threads(1)
    peers = join_group(StoreRendezvous(role, TIMEOUT_S), torch.device("cpu"), TIMEOUT_S)
    for number, (method, compress, pull) in enumerate(cases):
        model = Ready()
        update = Update(dict(model.named_parameters()), [], OptimConfig(), SCHEDULE)
        exchange: Exchange
        if method == "collective":
            spec = parse_compression(compress)
            exchange = collective_exchange(
                model, update, role, accumulate=1, clip_norm=None, compression=spec, peers=peers
            )
            exchange.connections.pop_all()  # the group is for the cases that follow, too
        else:
            settings = ExchangeConfig(
                method=method, workers=WORKERS, timeout_s=TIMEOUT_S, compress=compress, compress_pull=pull
            )
            mine = replace(role, servers=(role.servers[number],))
            exchange = pserver_exchange(model, [], OptimConfig(), SCHEDULE, settings, mine)
        found = [_step(exchange, step) for step in range(1 + steps)][1:]
        print(json.dumps(found), flush=True)
        exchange.close()
    leave_group(peers)


def _step(exchange: Exchange, step: int) -> tuple[float, int, int]:
    torch.distributed.barrier()
    begin = time.perf_counter()
    output = exchange.gradients.forward(torch.empty(0))
    with exchange.gradients.accumulate(last=True):
        output.backward()
    applied = exchange.gradients.apply(step)
    return time.perf_counter() - begin, applied.bytes_sent, applied.bytes_received


def main() -> None:
    if sys.argv[1:2] == ["process"]:
        role = role_from_env(os.environ)
        assert role is not None
        keep_freed_memory()
        if role.kind == "server":
            from phalanx.roles.server import serve

            sys.exit(serve(role))
        return work(json.loads(sys.argv[2]), int(sys.argv[3]), role)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rates", default="1Gbit,10Gbit")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--cases", choices=sorted(CASES), default="all")
    given = parser.parse_args()
    for rate in given.rates.split(","):
        _report(rate, CASES[given.cases], measure(rate, CASES[given.cases], given.steps))
    return None


def measure(rate: str, cases: list[tuple[str, str, str]], steps: int) -> list[list[list[tuple[float, int, int]]]]:
    """What each worker printed: by worker, case and step."""
    from tests.lab.hosts import hosts_up

    from benchmarks.plan_lab import shape

    with hosts_up(WORKERS + 1) as lab:
        shape(lab, rate)
        server, *workers = lab.names
        addresses = tuple(f"tcp://{lab.address(server)}:{FIRST_PORT + number}" for number in range(len(cases)))
        base = Role(master=f"{lab.address(workers[0])}:{FIRST_PORT}", servers=addresses, key=secrets.token_hex(16))

        def command(host: str, role: Role) -> list[str]:
            words = [sys.executable, "-m", "benchmarks.link", "process", json.dumps(cases), str(steps)]
            variables = {**environment_of(role), "GLOO_SOCKET_IFNAME": "eth0"}
            return lab.command(
                host, ["env", *(f"{name}={value}" for name, value in variables.items()), *words], Path.cwd()
            )

        with _running(
            [command(host, replace(base, rank=rank, world=WORKERS)) for rank, host in enumerate(workers)]
        ) as started:
            for number, (method, *_) in enumerate(cases):
                if method == "pserver":  # a server ends with its job
                    role = replace(base, kind="server", servers=(addresses[number],))
                    subprocess.run(command(server, role), check=True, timeout=TIMEOUT_S)
            return [
                [json.loads(line) for line in each.communicate(timeout=TIMEOUT_S)[0].splitlines()] for each in started
            ]


@contextmanager
def _running(commands: list[list[str]]) -> Iterator[list["subprocess.Popen[str]"]]:
    started = [subprocess.Popen(words, stdout=subprocess.PIPE, text=True) for words in commands]
    try:
        yield started
    finally:
        for each in started:
            each.kill()
            each.wait()


def _report(rate: str, cases: list[tuple[str, str, str]], found: list[list[list[tuple[float, int, int]]]]) -> None:
    print(f"| {rate} | pulls | ms | speed-up | of the link |")
    print("| --- | --- | ---: | ---: | ---: |")
    plain: dict[str, float] = {}
    for number, (method, compress, pull) in enumerate(cases):
        seconds = statistics.median(max(turn)[0] for turn in zip(*(worker[number] for worker in found), strict=True))
        _, sent, received = found[0][number][-1]
        busiest = max(sent, received) * (WORKERS if method == "pserver" else 1)
        first = plain.setdefault(method, seconds)
        share = busiest / parse_rate(rate, "--rates") / seconds
        print(f"| {method} {compress} | {pull} | {1000 * seconds:.0f} | {first / seconds:.2f} | {100 * share:.0f} % |")


if __name__ == "__main__":
    main()
