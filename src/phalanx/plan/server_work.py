"""What parameter servers do with each slice, in bytes and seconds: the same for every mode."""

from dataclasses import dataclass

from phalanx.plan.job import Job


@dataclass(frozen=True)
class ServerWork:
    """By message (a slice, or neighbours of one server), in the order in which backward completes them."""

    home: list[int]  # its server
    ready_s: list[float]  # since the beginning of backward
    encoded_s: list[float]  # encoding and copying, up to and with this one
    push_bytes: list[float]
    pull_bytes: list[float]
    take_s: list[float]  # the server receives and decodes one worker's gradient
    update_s: list[float]  # sums what is due, and updates
    reply_s: list[float]  # sends the parameters to one worker


def server_work(job: Job, most: int | None = None) -> ServerWork:
    """The work of a job's servers. With `most`, neighbouring slices of a server are taken together to so many messages.

    One of these costs what its slices cost: only their pipeline is coarser. It keeps the simulation of hundreds of
    workers short.
    """
    groups = _groups(job, most or len(job.slices))
    server, codec = job.server, job.codec
    together = job.workers if job.mode == "sync" else 1
    work = ServerWork([], [], [], [], [], [], [], [])
    encoded = 0.0
    for group in groups:
        slices = [job.slices[number] for number in group]
        size = float(sum(each.bytes for each in slices))
        wire = float(sum(map(job.slice_wire, slices)))
        pull = 0.5 * size if job.half_pull else size
        encoded += size * (codec.encode_s + job.copy_s)
        work.home.append(slices[0].server)
        work.ready_s.append(max(map(job.slice_ready, slices)))
        work.encoded_s.append(encoded)
        work.push_bytes.append(wire)
        work.pull_bytes.append(pull)
        work.take_s.append(len(group) * server.message + wire / server.rate + size * codec.decode_s)
        work.update_s.append(size * together / server.sum + size / server.update)
        work.reply_s.append(len(group) * server.message + pull / server.rate)
    return work


def _groups(job: Job, most: int) -> list[list[int]]:
    """Slices that are taken together, by their place in the order of backward."""
    each = max(1, -(-len(job.slices) // max(1, most)))
    open_: dict[int, list[int]] = {}
    groups = []
    for number, slice_ in enumerate(job.slices):
        group = open_.setdefault(slice_.server, [])
        group.append(number)
        if len(group) == each:
            groups.append(open_.pop(slice_.server))
    return sorted([*groups, *open_.values()], key=lambda group: group[-1])


def link_bytes(job: Job, work: ServerWork) -> float:
    """Bytes that the fullest link carries in a step, in one direction."""
    workers, servers = job.places()
    hosts = job.hosts + job.server_hosts
    on_host = [workers.count(host) for host in range(hosts)]
    sent, received = [0.0] * hosts, [0.0] * hosts
    for server, push, pull in zip(work.home, work.push_bytes, work.pull_bytes, strict=True):
        there = servers[server]
        remote = job.workers - on_host[there]
        received[there] += remote * push
        sent[there] += remote * pull
    total = dict.fromkeys(servers, (0.0, 0.0))
    for server, push, pull in zip(work.home, work.push_bytes, work.pull_bytes, strict=True):
        pushes, pulls = total[servers[server]]
        total[servers[server]] = pushes + push, pulls + pull
    for host, count in enumerate(on_host):
        sent[host] += count * sum(push for there, (push, _) in total.items() if there != host)
        received[host] += count * sum(pull for there, (_, pull) in total.items() if there != host)
    return max(*sent, *received)


def server_seconds(job: Job, work: ServerWork) -> list[float]:
    """Of each server's process, in a step."""
    seconds = [0.0] * job.servers
    times = 1 if job.mode == "sync" else job.workers
    for server, take, update, reply in zip(work.home, work.take_s, work.update_s, work.reply_s, strict=True):
        seconds[server] += job.workers * (take + reply) + times * update
    return seconds


def bound_s(job: Job) -> float:
    """A step of servers takes no less, whatever overlaps: for a search, which need not simulate what cannot win."""
    work = server_work(job)
    wire_s = link_bytes(job, work) / job.network.nic
    return max(*server_seconds(job, work), wire_s, job.accumulate * job.times.compute_s)


def server_busy(job: Job, step_s: float, compute_s: float, work: ServerWork) -> dict[str, float]:
    """Shares of a step that the fullest of each kind works."""
    busy = {"compute": compute_s / step_s, "links": link_bytes(job, work) / job.network.nic / step_s}
    busy["server"] = max(server_seconds(job, work)) / step_s
    if job.input_images_per_s is not None:
        images = job.batch * job.accumulate * min(job.per_host, job.workers)
        busy["input"] = images / job.input_images_per_s / step_s
    return busy
