"""What binds a job, and what would help: by simulating it again with one thing changed."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from phalanx.exchange.compress.spec import parse_compression
from phalanx.plan.job import Job, Network, codec_of
from phalanx.plan.predict import Prediction, Range
from phalanx.plan.setup import Arrangement, Setup
from phalanx.plan.simulate import simulate
from phalanx.plan.units import show_rate

LITTLE = 1.03  # a gain below is not worth saying
BINDS = 1.1  # where nothing else gives so much, computing binds
FREE = 1e15  # a rate that takes no time
SHOWN_BATCH = 8192  # images a step with which SGD was shown to keep its accuracy (Goyal et al. 2017)
Change = Callable[[Job], Job]


@dataclass(frozen=True)
class Constraint:
    """The one thing whose absence would help most, from how many workers on, and what to do."""

    kind: str  # compute, links, exchange, server, input, waiting
    gain: float  # times as fast without it; of compute: with a device of twice the speed
    since: int | None  # workers from which on it binds; None: computing does
    sentence: str


def constraint(setup: Setup, predicted: Prediction, counts: Sequence[int]) -> Constraint:
    """What binds, in one sentence. `counts`: numbers of workers between which its beginning is sought."""
    arranged, job = predicted.arranged, predicted.job
    kind, gain = binding(job)
    jobs = [job, *(setup.job(arranged, outlook) for outlook in (1.0, -1.0))]
    if kind == "compute":
        twice = _gain(jobs, _twice_the_device)
        share = predicted.simulated.parts["compute"] / predicted.simulated.step_s
        told = f"a device of twice the speed would give {_times(twice)}"
        return Constraint(kind, twice.expected, None, f"computing takes {100 * share:.0f} % of a step: {told}")
    since = _since(setup, arranged, kind, counts)
    gains = [
        (simulate(job).step_s / simulate(change(job)).step_s, what, change)
        for what, change in _remedies(setup, job, kind)
    ]
    best = sorted((one for one in gains if one[0] >= LITTLE), key=lambda one: -one[0])[:2]
    told = ", or ".join(f"{what} would give {_times(_gain(jobs, change))}" for _, what, change in best)
    ideal = f"without this limit it would be {gain:.2f}× as fast"
    first = "" if since is None or since == arranged.workers else f" (from {since} workers on)"
    return Constraint(kind, gain, since, f"{_sentence(kind, setup, predicted)}{first}: {told or ideal}")


def binding(job: Job) -> tuple[str, float]:
    """(what binds, times as fast without it); compute where nothing else gives much."""
    now = simulate(job).step_s
    gains = {kind: now / simulate(other).step_s for kind, other in _without(job)}
    kind = max(gains, key=lambda one: gains[one], default="compute")
    if kind == "exchange" and gains.get("links", 0.0) > 0.95 * gains[kind]:
        kind = "links"  # the hosts' links are nearly all of it, and can be named
    return ("compute", 1.0) if gains.get(kind, 1.0) < BINDS else (kind, gains[kind])


def _without(job: Job) -> Iterator[tuple[str, Job]]:
    """The job without one of its limits each."""
    if job.input_images_per_s is not None:
        yield "input", job.but(input_images_per_s=None)
    if job.spread and job.workers > 1:
        yield "waiting", job.but(spread=0.0)
    network = job.network
    if job.workers > 1 and job.all_hosts > 1:
        yield "links", job.but(network=Network(FREE, 0.0, network.inside, network.inside_latency_s, network.backend))
    if job.workers > 1 and job.method == "collective":
        yield "exchange", job.but(network=Network(FREE, 0.0, FREE, 0.0, network.backend))
    if job.method == "pserver":
        fast = job.server.model_copy(update={"rate": FREE, "sum": FREE, "update": FREE, "message": 0.0})
        yield "server", job.but(server=fast)


def _since(setup: Setup, arranged: Arrangement, kind: str, counts: Sequence[int]) -> int | None:
    """The least number of workers with which it binds: between counts by halving, in whole hosts."""

    def binds(workers: int) -> bool:
        return binding(setup.job(replace(arranged, workers=workers)))[0] == kind

    binding_count, below = arranged.workers, 0
    for count in sorted(set(counts) - {arranged.workers}, reverse=True):
        if not binds(count):
            below = count
            break
        binding_count = count
    unit = setup.cluster.per_host if binding_count > setup.cluster.per_host else 1
    low, high = below // unit, -(-binding_count // unit)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if binds(middle * unit) else (middle, high)
    return min(binding_count, high * unit)


def _gain(jobs: Sequence[Job], change: Change) -> Range:
    """Times as fast with a change: as expected, and with uncertain inputs at either end."""
    first, *others = (simulate(job).step_s / simulate(change(job)).step_s for job in jobs)
    return Range.of(first, others)


def _times(gain: Range) -> str:
    low, high = f"{gain.low:.2f}", f"{gain.high:.2f}"
    return f"{gain.expected:.2f}×" + (f" ({low} to {high})" if low != high else "")


def _twice_the_device(job: Job) -> Job:
    return job.but(times=job.times.scaled(0.5))


def _sentence(kind: str, setup: Setup, predicted: Prediction) -> str:
    job, busy, parts = predicted.job, predicted.simulated.busy, predicted.simulated.parts
    match kind:
        case "input":
            return f"a host's input of {job.input_images_per_s or 0.0:,.0f} images/s is full"
        case "waiting":
            lost = 100 * parts["waiting"] / predicted.simulated.step_s
            return f"{lost:.0f} % of a step is waiting for the slowest of {job.workers} workers"
        case "server":
            servers = "the server's process is" if job.servers == 1 else f"the {job.servers} servers' processes are"
            return f"{servers} busy {100 * min(1.0, busy['server']):.0f} % of the time"
        case "links":
            name = setup.cluster.link or show_rate(job.network.nic)
            full = 100 * min(1.0, busy["links"])
            hosts = "the servers' hosts'" if job.server_hosts and job.method == "pserver" else "the hosts'"
            return f"{hosts} {name} links are busy {full:.0f} % of the time"
        case _:
            lost = 100 * parts["exchange"] / predicted.simulated.step_s
            return f"{lost:.0f} % of a step is exchange that backward does not hide"


def _remedies(setup: Setup, job: Job, kind: str) -> Iterator[tuple[str, Change]]:
    """(what to do, the job with that) of real changes."""
    if kind == "input":
        twice = "twice the input (--cores, or --data-servers)"
        yield twice, lambda one: one.but(input_images_per_s=2 * (one.input_images_per_s or FREE))
        return
    if kind == "waiting":
        yield "half the spread of compute times", lambda one: one.but(spread=one.spread / 2)
        if job.method == "pserver" and job.mode == "sync":
            yield "--mode ssp:2 (which changes the result)", lambda one: one.but(mode="ssp:2")
        return
    if job.all_hosts > 1 and kind != "server":
        yield f"links of {show_rate(2 * setup.link.rate)}", _twice_the_link
    if job.method == "pserver":
        more = min(2 * job.servers, max(1, job.workers))
        if more > job.servers:
            count = more - job.servers
            yield f"{count} more server{'s' * (count > 1)}", lambda one: one.but(servers=more)
        if job.mode == "sync":
            yield "--update-method collective", lambda one: one.but(method="collective", copy_s=0.0)
    if job.compress.kind == "none":
        gpu = None if setup.device.is_cpu or job.method == "pserver" else setup.device.bandwidth
        for name in ("fp16", "2bit"):
            spec = parse_compression(name)
            codec = codec_of(spec, setup.cluster.table.software, gpu)
            yield f"--compress {name} (which changes the result)", partial(Job.but, compress=spec, codec=codec)


def _twice_the_link(job: Job) -> Job:
    return job.but(network=replace(job.network, nic=2 * job.network.nic))


def recipe_advice(setup: Setup, predicted: Prediction) -> list[str]:
    """What the recipe was not shown for."""
    images, config = predicted.job.images, setup.config
    said = []
    single = config.train.global_batch_size or config.train.batch_size * config.optim.accumulate
    if images > SHOWN_BATCH and config.optim.name.lower() in ("sgd", "momentum", "nesterov"):
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
