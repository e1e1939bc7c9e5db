"""Links and servers as queues: an event loop that takes workers through steps of push and pull.

Two kinds of events are in one heap: a worker sends a message, and a message arrives at its server. Links and servers
serve one message after the other, in the order in which they come. `native/server_queues.c` is the same loop in C, for
many messages; both give the same bits.
"""

from array import array
from dataclasses import dataclass, field
from heapq import heappop, heappush

from phalanx.plan.job import PREFETCH, Job
from phalanx.plan.pace import Pace
from phalanx.plan.server_work import ServerWork

SEND, ARRIVE = 0, 1


@dataclass(frozen=True)
class Moments:
    """When each worker's steps begin, have computed and end, and what servers did for the last reply: in seconds.

    By step, then worker.
    """

    begun: "array[float]"
    done: "array[float]"
    end: "array[float]"
    late: "array[float]"

    @classmethod
    def of(cls, count: int) -> "Moments":
        return cls(*(array("d", bytes(8 * count)) for _ in range(4)))


class ServerQueues:
    """A job's workers, links and servers. Times of links and servers are when they are free again."""

    def __init__(self, job: Job, work: ServerWork, pace: Pace, steps: int) -> None:
        self.job, self.work, self.pace, self.steps = job, work, pace, steps
        self.worker_host, self.server_host = job.places()
        hosts, workers, messages = job.hosts + job.server_hosts, job.workers, len(work.home)
        self.out, self.into, self.cpu = [0.0] * hosts, [0.0] * hosts, [0.0] * job.servers
        self.events: list[tuple[float, int, int, int]] = []
        self.step, self.open, self.before = [0] * workers, [0] * workers, [0.0] * workers
        self.made, self.free = [0.0] * workers, [0.0] * workers
        self.late = [0.0] * workers  # server time of the reply that came last
        self.arrived = [0] * messages  # sync: gradients that are there
        self.progress = [_Progress(workers) for _ in range(messages)] if job.staleness is not None else []
        self.moments = Moments.of(steps * workers)

    def run(self) -> Moments:
        work, events, last = self.work, self.events, len(self.work.home) - 1
        for worker in range(self.job.workers):
            self._begin(worker)
        while events:
            now, kind, worker, number = heappop(events)
            if kind == ARRIVE:
                self._arrive(worker, number, now)
                continue
            if number < last:
                self._send(worker, number + 1)
            path = self.worker_host[worker], self.server_host[work.home[number]]
            heappush(events, (self._travel(*path, work.push_bytes[number], now), ARRIVE, worker, number))
        return self.moments

    def _begin(self, worker: int) -> None:
        step, workers, pace = self.step[worker], self.job.workers, self.pace
        here, begin = step * workers + worker, self.free[worker]
        factor = pace.factors[here]
        if pace.batch_s > 0:
            room = self.moments.begun[here - PREFETCH * workers] if step >= PREFETCH else 0.0
            self.made[worker] = max(self.made[worker], room) + pace.batch_s
            begin = max(begin, self.made[worker])
        self.before[worker] = begin + factor * self.job.before_backward_s
        self.moments.begun[here] = begin
        computed = self.before[worker] + factor * self.job.times.backward_s
        self.moments.done[here] = computed + self.work.encoded_s[-1]
        self.open[worker] = len(self.work.home)
        self._send(worker, 0)

    def _send(self, worker: int, number: int) -> None:
        factor = self.pace.factors[self.step[worker] * self.job.workers + worker]
        ready = self.before[worker] + factor * self.work.ready_s[number] + self.work.encoded_s[number]
        heappush(self.events, (ready, SEND, worker, number))

    def _travel(self, source: int, target: int, num_bytes: float, now: float) -> float:
        """When a message is there: through the sender's link and the receiver's, without a stop in between."""
        if source == target:  # shared memory
            return now
        network = self.job.network
        seconds = num_bytes / network.nic
        begin = max(now, self.out[source])
        self.out[source] = sent = begin + seconds
        self.into[target] = received = max(begin, self.into[target]) + seconds
        return max(sent, received) + network.nic_latency_s

    def _arrive(self, worker: int, number: int, now: float) -> None:
        work, server = self.work, self.work.home[number]
        self.cpu[server] = max(self.cpu[server], now) + work.take_s[number]
        if self.job.mode == "sync":
            self.arrived[number] += 1
            if self.arrived[number] < self.job.workers:
                return
            self.arrived[number] = 0
            self.cpu[server] += work.update_s[number]
            for each in range(self.job.workers):
                self._reply(each, number, now)
            return
        self.cpu[server] += work.update_s[number]
        if self.job.staleness is None:
            self._reply(worker, number, now)
            return
        for each in self.progress[number].pushed(worker, self.job.staleness):
            self._reply(each, number, now)

    def _reply(self, worker: int, number: int, arrived: float) -> None:
        work, server = self.work, self.work.home[number]
        self.cpu[server] = sent = max(self.cpu[server], arrived) + work.reply_s[number]
        path = self.server_host[server], self.worker_host[worker]
        there = self._travel(*path, work.pull_bytes[number], sent)
        if there > self.free[worker]:
            self.free[worker], self.late[worker] = there, sent - arrived
        self.open[worker] -= 1
        if self.open[worker] == 0:
            self._end(worker)

    def _end(self, worker: int) -> None:
        """Its last reply is on the way; then it begins its next step."""
        here = self.step[worker] * self.job.workers + worker
        self.free[worker] = self.moments.end[here] = max(self.free[worker], self.moments.done[here])
        self.moments.late[here] = self.late[worker]
        self.step[worker] += 1
        if self.step[worker] < self.steps:
            self._begin(worker)


@dataclass
class _Progress:
    """ssp: how often each worker has pushed a message, and who waits for the slowest, as the servers' policy has it."""

    workers: int
    held: list[int] = field(default_factory=list)
    slowest: int = 0

    def __post_init__(self) -> None:
        self.clock = [0] * self.workers

    def pushed(self, worker: int, bound: int) -> list[int]:
        """Those that get a reply now: they are not too far ahead of the slowest."""
        self.clock[worker] += 1
        self.held.append(worker)
        if self.clock[worker] - 1 == self.slowest:
            self.slowest = min(self.clock)
        replied = [each for each in self.held if self.slowest > self.clock[each] - 1 - bound]
        self.held = [each for each in self.held if self.slowest <= self.clock[each] - 1 - bound]
        return replied
