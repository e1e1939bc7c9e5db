"""Steps of workers that all-reduce gradients, bucket by bucket, while backward runs. One worker has no exchange."""

from phalanx.plan.all_reduce import bucket_ready, bucket_seconds, mean, sync_s, wire_total
from phalanx.plan.job import Job
from phalanx.plan.simulate import Pace, Simulated, balanced, settled, steps_for


def simulate_collective(job: Job, steps: int | None, seed: int) -> Simulated:
    """A bucket is exchanged when the last worker has it and the bucket before is through: one at a time."""
    workers, pace, times = range(job.workers), Pace(job, seed), job.times
    before = (job.accumulate - 1) * times.compute_s + times.forward_s  # the last backward begins then
    ready, exchange_s = bucket_ready(job), bucket_seconds(job)
    if job.workers == 1:
        ready = [(seconds, 0.0) for seconds, _ in ready]
    encode_s = ready[-1][1] if ready else 0.0
    compute_s = job.accumulate * times.compute_s
    steps = steps or steps_for(job.workers * len(ready), 12_000, 8, 60)
    sync = sync_s(job)
    free, marks = [0.0] * job.workers, []
    sums = dict.fromkeys(("compute", "exchange", "waiting"), 0.0)
    for _ in range(steps):
        begin = [pace.start(worker, free[worker]) for worker in workers]
        factors = [pace.factor(worker) for worker in workers]
        channel = 0.0
        for (seconds, encoded), wire_s in zip(ready, exchange_s, strict=True):
            offset = before + seconds
            last = max(start + factor * offset for start, factor in zip(begin, factors, strict=True)) + encoded
            channel = max(channel, last) + wire_s
        done = [start + factor * compute_s + encode_s for start, factor in zip(begin, factors, strict=True)]
        slowest = max(done)
        end = max(channel, slowest) + sync
        sums["compute"] += mean([own - start for own, start in zip(done, begin, strict=True)])
        sums["waiting"] += max(0.0, slowest - mean(done))
        sums["exchange"] += max(0.0, end - slowest)
        free = [end + times.update_s] * job.workers
        marks.append(end + times.update_s)
    parts = {name: total / steps for name, total in sums.items()}
    step_s = settled(marks)
    parts |= {"server": 0.0, "update": times.update_s}
    return Simulated(step_s, balanced(job, step_s, parts), _busy(job, step_s, parts["compute"], exchange_s), steps)


def _busy(job: Job, step_s: float, compute_s: float, exchange_s: list[float]) -> dict[str, float]:
    on_host = min(job.per_host, job.workers)
    shares = {"compute": compute_s / step_s, "links": wire_total(job) / job.network.nic / step_s}
    shares["exchange"] = sum(exchange_s) / step_s
    if job.input_images_per_s is not None:
        shares["input"] = job.batch * job.accumulate * on_host / job.input_images_per_s / step_s
    return shares
