"""What binds a job, and what would help: by simulating it again with one thing changed."""

from collections.abc import Iterator
from dataclasses import dataclass

from phalanx.exchange.compress.spec import parse_compression
from phalanx.plan.job import Job, codec_of
from phalanx.plan.predict import Prediction
from phalanx.plan.setup import Setup
from phalanx.plan.simulate import simulate
from phalanx.plan.units import show_rate

LITTLE = 1.03  # a gain below is not worth saying
BINDS = 1.1  # where nothing else gives so much, computing binds
SHOWN_BATCH = 8192  # images a step with which SGD was shown to keep its accuracy (Goyal et al. 2017)


@dataclass(frozen=True)
class Constraint:
    """The one thing whose absence would help most, how much of its time it works, and what to do."""

    kind: str  # compute, links, exchange, server, input, waiting
    gain: float  # times as fast without it
    sentence: str


def _without(job: Job) -> Iterator[tuple[str, Job]]:
    """The job without one of its limits each."""
    free = 1e15
    if job.input_images_per_s is not None:
        yield "input", job.but(input_images_per_s=None)
    if job.spread and job.workers > 1:
        yield "waiting", job.but(spread=0.0)
    network = job.network
    if job.workers > 1 and (job.all_hosts > 1):
        yield "links", job.but(network=type(network)(free, 0.0, network.inside, network.inside_latency_s, "nccl"))
    if job.workers > 1 and job.method == "collective":
        yield "exchange", job.but(network=type(network)(free, 0.0, free, 0.0, "nccl"))
    if job.method == "pserver":
        fast = job.server.model_copy(update={"rate": free, "sum": free, "update": free, "message": 0.0})
        yield "server", job.but(server=fast)
    yield "compute", job.but(times=job.times.scaled(0.5))


def constraint(setup: Setup, predicted: Prediction) -> Constraint:
    """What binds, in one sentence."""
    job, now = predicted.job, predicted.simulated.step_s
    gains = {kind: now / simulate(other).step_s for kind, other in _without(job)}
    others = {kind: gain for kind, gain in gains.items() if kind != "compute"}
    kind = max(others, key=lambda one: others[one]) if others else "compute"
    if not others or others[kind] < BINDS:
        return Constraint("compute", gains["compute"], _compute_sentence(predicted, gains["compute"]))
    helped = sorted(_remedies(setup, job, now, kind), reverse=True)
    told = " or ".join(f"{what} would give {gain:.2f}×" for gain, what in helped[:2] if gain >= LITTLE)
    ideal = f"without this limit it would be {others[kind]:.2f}× as fast"
    return Constraint(kind, others[kind], f"{_sentence(kind, setup, predicted)}: {told or ideal}")


def _compute_sentence(predicted: Prediction, gain: float) -> str:
    share = predicted.simulated.parts["compute"] / predicted.simulated.step_s
    return f"computing takes {100 * share:.0f} % of a step: a device of twice the speed would give {gain:.2f}×"


def _sentence(kind: str, setup: Setup, predicted: Prediction) -> str:
    job, busy = predicted.job, predicted.simulated.busy
    lost = 100 * predicted.simulated.parts.get(kind, 0.0) / predicted.simulated.step_s
    match kind:
        case "input":
            rate = job.input_images_per_s or 0.0
            return f"a host's input of {rate:,.0f} images/s is full"
        case "waiting":
            return f"{lost:.0f} % of a step is waiting for the slowest of {job.workers} workers"
        case "server":
            servers = "the server's process is" if job.servers == 1 else f"the {job.servers} servers' processes are"
            return f"{servers} busy {100 * min(1.0, busy['server']):.0f} % of the time"
        case "links":
            name = setup.cluster.link if setup.cluster.link else show_rate(job.network.nic)
            full = 100 * min(1.0, busy["links"])
            hosts = "the servers' hosts'" if job.server_hosts and job.method == "pserver" else "the hosts'"
            return f"{hosts} {name} links are busy {full:.0f} % of the time"
        case _:
            lost = 100 * predicted.simulated.parts["exchange"] / predicted.simulated.step_s
            return f"{lost:.0f} % of a step is exchange that backward does not hide"


def _remedies(setup: Setup, job: Job, now: float, kind: str) -> Iterator[tuple[float, str]]:
    """(times as fast, what to do) of real changes."""

    def gain(other: Job) -> float:
        return now / simulate(other).step_s

    if kind == "input":
        rate = job.input_images_per_s or 0.0
        yield gain(job.but(input_images_per_s=2 * rate)), "twice the input (cores, or --data-servers)"
        return
    if kind == "waiting":
        yield gain(job.but(spread=job.spread / 2)), "half the spread of compute times"
        if job.method == "pserver" and job.mode == "sync":
            yield gain(job.but(mode="ssp:2")), "--mode ssp:2 (which changes the result)"
        return
    network = job.network
    faster = type(network)(2 * network.nic, network.nic_latency_s, network.inside, network.inside_latency_s, "nccl")
    if job.all_hosts > 1 and kind != "server":
        yield gain(job.but(network=faster)), f"links of {show_rate(2 * setup.link.rate)}"
    if job.method == "pserver":
        more = min(2 * job.servers, max(1, job.workers))
        if more > job.servers:
            yield gain(job.but(servers=more)), f"{more - job.servers} more servers"
        if job.mode == "sync":
            yield gain(job.but(method="collective", copy_s=0.0)), "--update-method collective"
    if job.compress.kind == "none":
        gpu = None if setup.device.is_cpu or job.method == "pserver" else setup.device.bandwidth
        for name in ("fp16", "2bit"):
            spec = parse_compression(name)
            other = job.but(compress=spec, codec=codec_of(spec, setup.cluster.table.software, gpu))
            yield gain(other), f"--compress {name}"


def recipe_advice(setup: Setup, predicted: Prediction) -> list[str]:
    """What the recipe was not shown for."""
    images, config = predicted.job.images, setup.config
    said = []
    single = config.train.global_batch_size or config.train.batch_size * config.optim.accumulate
    if images > SHOWN_BATCH and config.optim.name.lower() in ("sgd", "momentum"):
        said.append(
            f"a step has {images:,} images; SGD was shown to keep its accuracy up to {SHOWN_BATCH:,} (Goyal et al.): "
            f"give --global-batch-size {SHOWN_BATCH}, or try optim.name=lars or lamb"
        )
    if images != single and config.optim.lr_per is None:
        said.append(
            f"optim.lr={config.optim.lr:g} is for {single:,} images a step, and a step has {images:,}: "
            f"give optim.lr_per={single} (linear scaling), or --global-batch-size {single}"
        )
    if setup.data.samples and images > setup.data.samples:
        said.append(f"a step of {images:,} images is larger than the data, {setup.data.samples:,}")
    return said
