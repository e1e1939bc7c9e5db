"""Steps of workers that push slices to parameter servers and get the updated parameters back: sync, async, ssp.

Two kinds of events are in one heap: a worker sends a message, and a message arrives at its server. Links and servers
serve one message after the other, in the order in which they come.
"""

from heapq import heappop, heappush

from phalanx.plan.job import Job
from phalanx.plan.server_work import server_busy, server_work
from phalanx.plan.simulate import Pace, Simulated, balanced, settled, steps_for

SEND, ARRIVE = 0, 1
FEW = 6_000  # messages of a step that are simulated one by one; of more, neighbours are taken together


def simulate_pserver(job: Job, steps: int | None, seed: int) -> Simulated:
    """Run all workers through so many steps."""
    most = max(job.servers, FEW // job.workers)
    messages = job.workers * min(most, len(job.slices))
    return _Servers(job, steps or steps_for(messages, 8_000, 4, 40), most, seed).run()


class _Servers:
    """The state of a simulated job. Times of links and servers are when they are free again."""

    def __init__(self, job: Job, steps: int, most: int, seed: int) -> None:
        self.job, self.steps, self.pace = job, steps, Pace(job, seed)
        self.work = server_work(job, most)
        self.worker_host, self.server_host = job.places()
        hosts, count, messages = job.hosts + job.server_hosts, job.workers, len(self.work.home)
        self.out, self.into, self.cpu = [0.0] * hosts, [0.0] * hosts, [0.0] * job.servers
        self.events: list[tuple[float, int, int, int]] = []
        self.step, self.open, self.before = [0] * count, [0] * count, [(0.0, 1.0)] * count
        self.begun, self.done, self.free = [0.0] * count, [0.0] * count, [0.0] * count
        self.late = [0.0] * count  # server time of the reply that came last
        self.arrived = [0] * messages  # sync: gradients that are there
        self.clock = [[0] * count for _ in range(messages)] if job.mode.startswith("ssp") else []
        self.held: list[list[int]] = [[] for _ in range(messages)]  # ssp: workers that wait for the slowest
        self.ends: list[list[tuple[float, float, float]]] = [[] for _ in range(steps)]  # done, end, server time
        self.marks: list[list[float]] = [[] for _ in range(count)]
        self.computed = 0.0

    def run(self) -> Simulated:
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
        return self._result()

    def _begin(self, worker: int) -> None:
        job, times = self.job, self.job.times
        begin, factor = self.pace.start(worker, self.free[worker]), self.pace.factor(worker)
        before = begin + factor * ((job.accumulate - 1) * times.compute_s + times.forward_s)
        self.begun[worker], self.before[worker] = begin, (before, factor)
        self.done[worker] = before + factor * times.backward_s + self.work.encoded_s[-1]
        self.open[worker] = len(self.work.home)
        self._send(worker, 0)

    def _send(self, worker: int, number: int) -> None:
        before, factor = self.before[worker]
        ready = before + factor * self.work.ready_s[number] + self.work.encoded_s[number]
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
        if self.clock:
            self.clock[number][worker] += 1
            self.held[number].append(worker)
            self._release(number, now)
        else:
            self._reply(worker, number, now)

    def _release(self, number: int, now: float) -> None:
        """ssp: reply to those that are not too far ahead of the slowest, as the servers' policy does."""
        clock, bound = self.clock[number], int(self.job.mode.partition(":")[2])
        slowest, waiting = min(clock), self.held[number]
        self.held[number] = [each for each in waiting if slowest <= clock[each] - 1 - bound]
        for each in waiting:
            if slowest > clock[each] - 1 - bound:
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
        self.free[worker] = end = max(self.free[worker], self.done[worker])
        self.ends[self.step[worker]].append((self.done[worker], end, self.late[worker]))
        self.marks[worker].append(end)
        self.computed += self.done[worker] - self.begun[worker]
        self.step[worker] += 1
        if self.step[worker] < self.steps:
            self._begin(worker)

    def _result(self) -> Simulated:
        job, sums = self.job, dict.fromkeys(("exchange", "server", "waiting"), 0.0)
        for step in self.ends:
            slowest = max(done for done, _, _ in step) if job.mode == "sync" else 0.0
            for done, end, server in step:
                waiting = min(end - done, max(0.0, slowest - done))
                serving = min(end - done - waiting, server)
                sums["waiting"] += waiting
                sums["server"] += serving
                sums["exchange"] += end - done - waiting - serving
        count = job.workers * self.steps
        parts = {name: total / count for name, total in sums.items()}
        parts |= {"compute": self.computed / count, "update": 0.0}
        step_s = job.workers / sum(1 / settled(marks) for marks in self.marks)
        busy = server_busy(job, step_s, parts["compute"], self.work)
        return Simulated(step_s, balanced(job, step_s, parts), busy, self.steps)
