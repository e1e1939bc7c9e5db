"""Steps of workers that push slices to parameter servers and get the updated parameters back: sync, async, ssp."""

from phalanx.plan.job import Job
from phalanx.plan.native_queues import native_moments
from phalanx.plan.pace import make_pace
from phalanx.plan.server_queues import Moments, ServerQueues
from phalanx.plan.server_work import ServerWork, server_busy, server_work
from phalanx.plan.simulate import Simulated, balanced, settled

FEW = 6_000  # messages of a step that are simulated one by one; of more, neighbours are taken together
BUDGET, LEAST, MOST = 8_000, 4, 40  # messages of all steps, and steps, where their number is not given
WORTH = 2_000  # messages from which on C code is used: it may have to be compiled


def simulate_pserver(job: Job, steps: int | None, seed: int) -> Simulated:
    """Run all workers through so many steps."""
    work = server_work(job, max(job.servers, FEW // job.workers))
    messages = job.workers * len(work.home)
    steps = steps or max(LEAST, min(MOST, BUDGET // messages))
    queues = ServerQueues(job, work, make_pace(job, steps, seed), steps)
    moments = native_moments(queues) if messages * steps >= WORTH else None
    return _result(job, work, moments or queues.run(), steps)


def _result(job: Job, work: ServerWork, moments: Moments, steps: int) -> Simulated:
    workers = job.workers
    sums = dict.fromkeys(("compute", "exchange", "server", "waiting"), 0.0)
    for first in range(0, steps * workers, workers):
        step = slice(first, first + workers)
        slowest = max(moments.done[step]) if job.mode == "sync" else 0.0
        each = (getattr(moments, name)[step] for name in ("begun", "done", "end", "late"))
        for begun, done, end, late in zip(*each, strict=True):
            waiting = min(end - done, max(0.0, slowest - done))
            server = min(end - done - waiting, late)
            sums["compute"] += done - begun
            sums["waiting"] += waiting
            sums["server"] += server
            sums["exchange"] += end - done - waiting - server
    parts = {name: total / (workers * steps) for name, total in sums.items()} | {"update": 0.0}
    step_s = workers / sum(1 / settled(moments.end[worker::workers]) for worker in range(workers))
    return Simulated(step_s, balanced(job, step_s, parts), server_busy(job, step_s, parts["compute"], work), steps)
