"""A job as the simulation sees it: numbers alone, all of them known before it starts."""

import functools
from dataclasses import dataclass, replace

from phalanx.exchange.collective.buckets import fill_buckets
from phalanx.exchange.compress.spec import CompressionSpec
from phalanx.exchange.compress.wire_sizes import wire_bytes
from phalanx.exchange.pserver.slices import Slice, cut
from phalanx.launch.hosts import Host
from phalanx.launch.placement import DedicatedHosts, place
from phalanx.plan.compute import StepTimes
from phalanx.plan.devices import Server, Software
from phalanx.plan.profile import ModelProfile

NO_COMPRESSION = CompressionSpec()
PREFETCH = 3  # batches made ahead, as data.prefetch
SLICE_BYTES = 4 << 20  # as exchange/pserver cuts


@dataclass(frozen=True)
class Network:
    """Bytes a second of one direction, and seconds of a message: of a host's link, and inside of a host."""

    nic: float
    nic_latency_s: float
    inside: float
    inside_latency_s: float
    backend: str  # nccl or gloo


@dataclass(frozen=True)
class Codec:
    """Seconds for a byte of float32."""

    encode_s: float = 0.0
    decode_s: float = 0.0


@dataclass(frozen=True)
class Job:
    """Everything that a simulated job depends on."""

    profile: ModelProfile
    times: StepTimes  # of one micro-batch
    batch: int  # images of one micro-batch
    network: Network
    server: Server
    codec: Codec = Codec()
    workers: int = 1
    per_host: int = 1
    method: str = "local"
    servers: int = 1
    server_hosts: int = 0  # hosts that have servers alone; 0: servers share the workers' hosts
    mode: str = "sync"
    compress: CompressionSpec = NO_COMPRESSION
    half_pull: bool = False
    whole_tensors: bool = False  # the optimizer must see whole tensors
    slice_bytes: int = SLICE_BYTES
    accumulate: int = 1
    input_images_per_s: float | None = None  # of a host; None: never waited for
    spread: float = 0.0  # of compute times, from step to step and from worker to worker: deviation over mean
    copy_s: float = 0.0  # seconds for a byte that a worker copies before it is pushed

    @property
    def hosts(self) -> int:
        """Hosts with workers."""
        return -(-self.workers // self.per_host)

    @property
    def all_hosts(self) -> int:
        return self.hosts + (self.server_hosts if self.method == "pserver" else 0)

    @property
    def images(self) -> int:
        """Of a step, over all workers."""
        return self.workers * self.batch * self.accumulate

    @property
    def before_backward_s(self) -> float:
        """Seconds of a step until its last backward pass begins: gradients are complete in that one."""
        return (self.accumulate - 1) * self.times.compute_s + self.times.forward_s

    @property
    def staleness(self) -> int | None:
        """ssp: by how many steps a worker may be ahead; None in other modes."""
        return int(self.mode.partition(":")[2]) if self.mode.startswith("ssp") else None

    @functools.cached_property
    def ready_s(self) -> dict[int, float]:
        """When each gradient is ready, since the beginning of the last backward pass."""
        return dict(self.times.ready)

    @functools.cached_property
    def buckets(self) -> list[list[int]]:
        """Parameters by bucket, in the order in which the exchange sends them."""
        order = [place for place, _ in self.times.ready]
        sizes = [4 * self.profile.sizes[place] for place in order]
        return [[order[number] for number in bucket] for bucket in fill_buckets(sizes)]

    @functools.cached_property
    def slices(self) -> list[Slice]:
        """Slices on servers, in the order in which they are complete."""
        named = {str(place): size for place, size in enumerate(self.profile.sizes)}
        found = cut(named, self.servers, self.slice_bytes, self.whole_tensors)
        return sorted(found, key=self.slice_ready)

    def slice_ready(self, slice_: Slice) -> float:
        return max(self.ready_s[int(piece.name)] for piece in slice_.pieces)

    def slice_wire(self, slice_: Slice) -> int:
        """Bytes of its gradient on the wire."""
        if self.compress.kind == "none":
            return slice_.bytes
        return sum(wire_bytes(self.compress, piece.stop - piece.start) for piece in slice_.pieces)

    def bucket_wire(self, bucket: list[int]) -> int:
        profile = self.profile
        return sum(wire_bytes(self.compress, profile.sizes[place], profile.rows[place]) for place in bucket)

    def places(self) -> tuple[list[int], list[int]]:
        """The host of each worker and of each server: where `phalanx launch` puts them."""
        hosts = [Host(f"h{number}", slots=self.per_host) for number in range(self.hosts)]
        apart = range(self.hosts, self.hosts + self.server_hosts)
        hosts += [Host(f"h{number}") for number in apart]
        found = place(hosts, {"trainer": self.workers, "server": self.servers}, DedicatedHosts(tuple(apart)))
        by_kind = {kind: [each.host for each in found if each.kind == kind] for kind in ("trainer", "server")}
        return by_kind["trainer"], by_kind["server"]

    def but(self, **changes: object) -> "Job":
        """The same with changes."""
        return replace(self, **changes)  # type: ignore[arg-type]


def codec_of(spec: CompressionSpec, software: Software, gpu_bandwidth: float | None) -> Codec:
    """How fast gradients are compressed: on a GPU by passes over its memory (`gpu_bandwidth`), on a CPU as measured."""
    if spec.kind == "none":
        return Codec()
    if gpu_bandwidth is not None:  # torch's kernels read and write the values some times
        return Codec(15 / gpu_bandwidth, 6 / gpu_bandwidth)
    encode, decode = software.codecs[spec.kind]
    return Codec(1e-9 / encode, 1e-9 / decode)
