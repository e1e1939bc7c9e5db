"""Random faults for a job that has to survive them all. Each is bounded, and over when its function returns."""

import os
import random
import signal
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass

from tests.lab import network
from tests.lab.hosts import Lab

from benchmarks.chaos.job import Job

SHORT_S = (1.0, 4.0)  # shorter than exchange.silence_s: nobody may be taken for lost
LONG_S = 9.0  # longer


@dataclass
class Scene:
    """What faults happen to. `hosts` are those that run roles; one that is cut off for good is taken out."""

    lab: Lab
    job: Job
    draw: random.Random
    hosts: list[str]
    roles: list[str]

    def pid(self, role: str) -> int | None:
        found = self.job.role(role)
        return None if found is None else found.pid

    def short_s(self) -> float:
        return self.draw.uniform(*SHORT_S)


Event = Callable[[Scene], str]


def kill_role(scene: Scene) -> str:
    role = scene.draw.choice(scene.roles)
    _signal(scene, role, signal.SIGKILL)
    return f"kill -9 of {role}"


def stop_shortly(scene: Scene) -> str:
    return _stop(scene, scene.short_s())


def stop_longer(scene: Scene) -> str:
    return _stop(scene, LONG_S)


def _stop(scene: Scene, seconds: float) -> str:
    role = scene.draw.choice(scene.roles)
    pid = scene.pid(role)
    _signal(scene, role, signal.SIGSTOP)
    time.sleep(seconds)
    if pid is not None:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
    return f"SIGSTOP of {role} for {seconds:.1f} s"


def _signal(scene: Scene, role: str, number: signal.Signals) -> None:
    pid = scene.pid(role)
    if pid is not None:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def partition_shortly(scene: Scene) -> str:
    host = scene.draw.choice(scene.hosts)
    return _for_a_while(scene, network.partitioned(scene.lab, host), f"partition of {host}")


def one_way_shortly(scene: Scene) -> str:
    host = scene.draw.choice(scene.hosts)
    way = scene.draw.choice([network.mute, network.deaf])
    return _for_a_while(scene, way(scene.lab, host), f"{host} is {way.__name__}")


def delay(scene: Scene) -> str:
    host, milliseconds = scene.draw.choice(scene.hosts), scene.draw.choice([10.0, 50.0, 200.0])
    return _for_a_while(scene, network.delayed(scene.lab, host, milliseconds, 10.0), f"{milliseconds:g} ms at {host}")


def loss(scene: Scene) -> str:
    host, share = scene.draw.choice(scene.hosts), scene.draw.choice([0.01, 0.05, 0.2])
    return _for_a_while(scene, network.lossy(scene.lab, host, share), f"{100 * share:g} % of packets lost at {host}")


def narrow(scene: Scene) -> str:
    host = scene.draw.choice(scene.hosts)
    return _for_a_while(scene, network.limited(scene.lab, host, "20mbit"), f"20 Mbit/s at {host}")


def _for_a_while(scene: Scene, fault: AbstractContextManager[None], what: str) -> str:
    seconds = scene.short_s()
    with fault:
        time.sleep(seconds)
    return f"{what} for {seconds:.1f} s"


def lose_host(scene: Scene) -> str:
    """The agent of a host is killed: for the launcher the host is gone, and its roles move."""
    host = scene.draw.choice(scene.hosts[1:])
    for one in scene.job.alive():
        if one.host == host and one.words[-1] == "agent":
            with suppress(ProcessLookupError):
                os.kill(one.pid, signal.SIGKILL)
    scene.hosts.remove(host)
    return f"kill -9 of the agent of {host}"


USUAL: list[tuple[Event, int]] = [
    (kill_role, 5),
    (stop_longer, 2),
    (stop_shortly, 6),
    (partition_shortly, 4),
    (one_way_shortly, 4),
    (delay, 3),
    (loss, 3),
    (narrow, 2),
]


def plan(draw: random.Random, number: int) -> list[Event]:
    """So many events; one host of three is lost, if there are enough events for that, and a role is killed at least."""
    events = draw.choices([event for event, _ in USUAL], [weight for _, weight in USUAL], k=number)
    if number > 1:
        events[draw.randrange(number)] = kill_role
    if number >= 8:
        events[draw.randrange(number // 2, number)] = lose_host
    return events
