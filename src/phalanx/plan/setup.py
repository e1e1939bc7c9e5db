"""What is planned: a recipe on a cluster; and from that to jobs that can be simulated."""

from dataclasses import dataclass, replace

from phalanx.config.schema import RunConfig
from phalanx.errors import UserError
from phalanx.exchange.compress.spec import parse_compression
from phalanx.exchange.pserver.slices import needs_whole
from phalanx.plan.cluster import DEFAULT_SPREAD, Cluster
from phalanx.plan.compute import Achieved, StepTimes, achieved, choose_precision, step_times, with_cores
from phalanx.plan.devices import Device, Link, Precision
from phalanx.plan.job import Job, Network, codec_of
from phalanx.plan.profile import ModelProfile

KEPT = {"sgd": 1, "momentum": 1, "nesterov": 1, "lars": 1, "lion": 1, "muon-sgd": 1}  # values by optimizer; others: 2
PCIE = 12e9  # bytes a second from a GPU to its host
COPY = 4e9  # bytes a second of a copy in memory
SURE = 0.05  # of a measured speed: uncertainty
ROUNDS = 5  # until computing and update together take as long as measured


@dataclass(frozen=True)
class Arrangement:
    """What may be chosen freely for a number of workers: it changes the speed of a run."""

    workers: int
    method: str = "collective"
    servers: int = 1
    mode: str = "sync"
    compress: str = "none"

    def __str__(self) -> str:
        words = ["one worker" if self.workers == 1 else self.method]
        if self.method == "pserver":
            words = [f"pserver {self.mode}, {self.servers} server{'s' * (self.servers > 1)}"]
        if self.compress != "none":
            words.append(self.compress)
        return ", ".join(words)


@dataclass(frozen=True)
class Data:
    """What is known of the recipe's data."""

    samples: int | None  # of an epoch
    image_size: int
    channels: int
    classes: int
    in_memory: bool  # batches cost next to nothing


@dataclass(frozen=True)
class Setup:
    """A recipe, a cluster, a model's profile and its data."""

    config: RunConfig
    cluster: Cluster
    profile: ModelProfile
    data: Data
    words: tuple[str, ...] = ()  # how the user named the recipe, with its settings
    basis: str = ""  # of a measured speed: where it comes from
    times: StepTimes | None = None  # measured layer by layer, at the recipe's batch size

    @property
    def device(self) -> Device:
        device = self.cluster.table.device(self.cluster.device)
        cores = self.cluster.cores
        return with_cores(device, cores / self.cluster.per_host if cores else None)

    @property
    def precision(self) -> Precision:
        return choose_precision(self.config.machine.precision, self.device)

    @property
    def kept_values(self) -> int:
        optim = self.config.optim
        if optim.name.lower() in ("sgd", "momentum") and not optim.momentum:
            return 0
        return KEPT.get(optim.name.lower(), 2)

    @property
    def achieved(self) -> Achieved:
        """What a worker reaches; a measured speed replaces what the table says."""
        device = self.cluster.table.device(self.cluster.device)  # the figures of a CPU are for its cores in the table
        found = achieved(device, self.precision, self.cluster.table)
        measured = self.cluster.speed
        if measured is None:
            return found
        basis = self.basis or "the cluster's measured speed"
        return replace(
            self._slowed(found, measured.batch, measured.batch / measured.images_per_s), share=SURE, basis=basis
        )

    def _slowed(self, found: Achieved, batch: int, step_s: float) -> Achieved:
        """With it, a step of one worker takes so long. An update is bound by memory, so it does not slow down alike."""
        for _ in range(ROUNDS):
            times = step_times(self.profile, self.device, found, self.precision, batch, self.kept_values)
            factor = max(step_s - times.update_s, 0.1 * step_s) / times.compute_s
            found = replace(found, slow=factor * found.slow, operation_s=factor * found.operation_s)
        return found

    def batch(self, workers: int) -> int:
        """Images of one worker's micro-batch."""
        train, parts = self.config.train, workers * self.config.optim.accumulate
        if train.global_batch_size is None:
            return train.batch_size
        if train.global_batch_size < 2 * parts:
            raise UserError(
                f"{workers} workers cannot share a global batch of {train.global_batch_size}",
                why="each needs two images at least in a micro-batch",
                remedy="fewer workers, or a larger --global-batch-size",
            )
        return -(-train.global_batch_size // parts)

    def input_rate(self, workers: int) -> float | None:
        """Images a second that each of the workers' hosts gets; None where nothing limits them."""
        cluster, software = self.cluster, self.cluster.table.software
        if self.data.in_memory:
            return None
        rates = [cluster.input_images_per_s] if cluster.input_images_per_s else []
        if not rates and cluster.cores and not self.device.is_cpu:
            rates.append(cluster.cores * software.input.images_per_s)
        if cluster.data_servers and cluster.cores:
            hosts = -(-workers // min(cluster.per_host, workers))
            served = cluster.data_servers * cluster.cores * software.input.images_per_s / hosts
            pixels = self.data.channels * self.data.image_size**2
            rates = [min(served, self.link.speed() / pixels)]  # instead of making them
        elif cluster.disk:
            rates.append(cluster.disk / cluster.image_bytes)
        return min(rates) if rates else None

    @property
    def link(self) -> Link:
        table = self.cluster.table
        return table.link(self.cluster.link or "10Gbit")

    def job(self, arranged: Arrangement, outlook: float = 0.0, compute_outlook: float | None = None) -> Job:
        """A job to simulate. `outlook`: 0 is expected, 1 the best that the inputs allow, -1 the worst.

        That of computing is the same, unless it is given.
        """
        cluster, device, config = self.cluster, self.device, self.config
        workers = arranged.workers
        table, reached = cluster.table, self.achieved
        batch = self.batch(workers)
        times = self.times if self.times is not None and batch == self.batch(1) else None
        if times is None:
            times = step_times(self.profile, device, reached, self.precision, batch, self.kept_values)
        times = times.scaled(1 - (outlook if compute_outlook is None else compute_outlook) * reached.share)
        inside = table.link(cluster.inside or device.inside, "inside")
        nic, within = self.link.speed(outlook), inside.speed(outlook)
        message_s = 0.0
        if device.is_cpu:
            nic, message_s = min(nic, table.software.gloo.rate), table.software.gloo.message
        server = table.software.server
        better = 1 + 0.3 * outlook
        server = server.model_copy(
            update={name: better * getattr(server, name) for name in ("rate", "sum", "update")}
            | {"message": server.message / better}
        )
        spec = parse_compression(arranged.compress)
        gpu = None if device.is_cpu or arranged.method == "pserver" else device.bandwidth
        spread = cluster.spread if cluster.spread is not None else DEFAULT_SPREAD[device.exchange]
        return Job(
            self.profile,
            times,
            batch,
            Network(nic, self.link.latency + message_s, within, inside.latency + message_s, device.exchange),
            server,
            codec_of(spec, table.software, gpu),
            workers=workers,
            per_host=min(cluster.per_host, workers),
            method="local" if workers == 1 and arranged.method == "collective" else arranged.method,
            servers=arranged.servers,
            server_hosts=cluster.server_hosts if arranged.method == "pserver" else 0,
            mode=arranged.mode,
            compress=spec,
            half_pull=config.exchange.compress_pull != "none",
            whole_tensors=needs_whole(config.optim),
            accumulate=config.optim.accumulate,
            input_images_per_s=self.input_rate(workers),
            spread=max(0.0, spread * (1 - 0.5 * outlook)),
            copy_s=1 / (COPY if device.is_cpu else PCIE) if arranged.method == "pserver" else 0.0,
        )

    def but(self, cluster: Cluster) -> "Setup":
        return replace(self, cluster=cluster)


def asked_arrangement(setup: Setup, workers: int) -> Arrangement:
    """As the recipe says; several workers of a recipe for one are collective, as `phalanx train --workers` does."""
    exchange = setup.config.exchange
    method = "collective" if exchange.method == "local" else exchange.method
    mode = exchange.mode if method == "pserver" else "sync"
    return Arrangement(workers, method, exchange.servers if method == "pserver" else 1, mode, exchange.compress)
