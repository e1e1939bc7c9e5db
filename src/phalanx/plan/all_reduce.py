"""How long collectives take: ring and hierarchical all-reduce, and all-gather.

A ring of N workers passes every byte of the buffer 2 (N - 1)/N times over each link; hosts follow one another in the
ring, so a host's link carries the ring once, however many workers the host has. The hierarchical form sums inside of
hosts first: the same bytes, and fewer messages one after the other.
"""

from phalanx.plan.job import Job


def reduce_s(job: Job, num_bytes: float) -> float:
    """Seconds of an all-reduce: gloo's ring, or what NCCL chooses, the faster of ring and hierarchy."""
    if job.workers == 1:
        return 0.0
    ring = _ring(job, num_bytes)
    return ring if job.network.backend == "gloo" else min(ring, _hierarchy(job, num_bytes))


def gather_s(job: Job, num_bytes: float) -> float:
    """Seconds until every worker has every other's `num_bytes`."""
    hops = job.workers - 1
    return hops * num_bytes / _slowest(job) + hops * _hop_s(job)


def sync_s(job: Job) -> float:
    """The few numbers that workers sum once a step, before the update."""
    return reduce_s(job, 64.0)


def bucket_seconds(job: Job) -> list[float]:
    """Seconds on the wire of each bucket, in order, and of decoding what arrived."""
    if job.workers == 1:
        return [0.0] * len(job.buckets)
    kind, seconds = job.compress.kind, []
    for bucket in job.buckets:
        wire = job.bucket_wire(bucket)
        values = 4 * sum(job.profile.sizes[place] for place in bucket)
        if kind in ("2bit", "1bit", "topk"):  # every worker gets and decodes every payload
            seconds.append(gather_s(job, wire) + job.workers * values * job.codec.decode_s)
        else:
            decode = values * job.codec.decode_s if kind != "none" else 0.0
            seconds.append(reduce_s(job, wire) + decode)
    return seconds


def bucket_ready(job: Job) -> list[tuple[float, float]]:
    """Of each bucket: seconds of backward until its last gradient is there, and of encoding up to then."""
    ready, encoded = [], 0.0
    for bucket in job.buckets:
        encoded += 4 * sum(job.profile.sizes[place] for place in bucket) * job.codec.encode_s
        ready.append((max(job.ready_s[place] for place in bucket), encoded))
    return ready


def wire_total(job: Job) -> float:
    """Bytes that a host's link carries in a step, in one direction."""
    if job.hosts == 1:
        return 0.0
    total = float(sum(map(job.bucket_wire, job.buckets)))
    if job.compress.kind in ("2bit", "1bit", "topk"):
        return (job.workers - 1) * total
    return 2 * (job.workers - 1) / job.workers * total


def _ring(job: Job, num_bytes: float) -> float:
    passed = 2 * (job.workers - 1) / job.workers * num_bytes
    return passed / _slowest(job) + 2 * (job.workers - 1) * _hop_s(job)


def _hierarchy(job: Job, num_bytes: float) -> float:
    network, inside = job.network, min(job.per_host, job.workers)
    times = [2 * (inside - 1) / inside * num_bytes / network.inside]
    if job.hosts > 1:
        times.append(2 * (job.hosts - 1) / job.hosts * num_bytes / network.nic)
    latency = 2 * (inside - 1) * network.inside_latency_s
    latency += 2 * _log2(job.hosts) * network.nic_latency_s
    return max(times) + latency


def _slowest(job: Job) -> float:
    links = [job.network.nic] if job.hosts > 1 else []
    if min(job.per_host, job.workers) > 1:
        links.append(job.network.inside)
    return min(links)


def _hop_s(job: Job) -> float:
    """A message to the next in the ring: all move at once, so the slowest hop counts."""
    return job.network.nic_latency_s if job.hosts > 1 else job.network.inside_latency_s


def _log2(count: int) -> int:
    return max(0, (count - 1).bit_length())
