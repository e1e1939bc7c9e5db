"""Steps of workers that all-reduce gradients, bucket by bucket, while backward runs. One worker has no exchange."""

from statistics import fmean

from phalanx.plan.all_reduce import bucket_ready, bucket_seconds, sync_s, wire_total
from phalanx.plan.job import PREFETCH, Job
from phalanx.plan.pace import batch_seconds, order_statistics
from phalanx.plan.simulate import Simulated, balanced, settled

STEPS = 60


def simulate_collective(job: Job, steps: int | None) -> Simulated:
    """A bucket is exchanged when the last worker has it and the bucket before is through: one at a time.

    All workers begin a step together, and every step has the same compute times, only of other workers. So the
    slowest one's buckets and the mean of all are all that matters, for any number of workers.
    """
    times, shares = job.times, order_statistics(job.workers, job.spread)
    slowest_factor, mean_factor, batch_s = shares[-1], fmean(shares), batch_seconds(job)
    ready, exchange_s = bucket_ready(job), bucket_seconds(job)
    if job.workers == 1:
        ready = [(seconds, 0.0) for seconds, _ in ready]
    encode_s = ready[-1][1] if ready else 0.0
    compute_s = job.accumulate * times.compute_s
    sync, steps = sync_s(job), steps or STEPS
    free, made, unhidden = 0.0, 0.0, 0.0
    begun: list[float] = []
    marks: list[float] = []
    for step in range(steps):
        made = max(made, begun[step - PREFETCH] if step >= PREFETCH else 0.0) + batch_s
        begin = max(free, made)
        begun.append(begin)
        channel = 0.0
        for (seconds, encoded), wire_s in zip(ready, exchange_s, strict=True):
            full = begin + slowest_factor * (job.before_backward_s + seconds) + encoded
            channel = max(channel, full) + wire_s
        slowest = begin + slowest_factor * compute_s + encode_s
        end = max(channel, slowest) + sync
        unhidden += end - slowest
        free = end + times.update_s
        marks.append(free)
    step_s = settled(marks)
    parts = {
        "compute": mean_factor * compute_s + encode_s,
        "exchange": unhidden / steps,
        "waiting": (slowest_factor - mean_factor) * compute_s,
        "server": 0.0,
        "update": times.update_s,
    }
    return Simulated(step_s, balanced(job, step_s, parts), _busy(job, step_s, parts["compute"], exchange_s), steps)


def _busy(job: Job, step_s: float, compute_s: float, exchange_s: list[float]) -> dict[str, float]:
    shares = {"compute": compute_s / step_s, "links": wire_total(job) / job.network.nic / step_s}
    shares["exchange"] = sum(exchange_s) / step_s
    if job.input_images_per_s is not None:
        shares["input"] = batch_seconds(job) / step_s
    return shares
