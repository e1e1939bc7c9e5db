"""Small jobs for the tests of the planner, with numbers that can be worked out by hand."""

from typing import Any

from phalanx.api.plan_setup import Asked, make_setup
from phalanx.plan.compute import StepTimes
from phalanx.plan.devices import Server, known_table
from phalanx.plan.job import Job, Network
from phalanx.plan.profile import Cost, ModelProfile, Segment
from phalanx.plan.setup import Setup

MB = 1 << 20
INSTANT = Server(rate=1e15, sum=1e15, update=1e15, message=0.0)
REAL = known_table().software.server


def profile(*sizes: int) -> ModelProfile:
    """Parameters of so many values; backward makes the last one's gradient first."""
    segments = tuple(Segment(place, Cost(), Cost()) for place in reversed(range(len(sizes))))
    return ModelProfile(sizes, sizes, (Cost(), Cost()), segments, kept_bytes=1000)


def job(*sizes: int, forward_s: float = 0.1, backward_s: float = 0.2, update_s: float = 0.0, **changes: Any) -> Job:
    """Gradients are ready at equal distances; without changes links and servers take no time."""
    ready = [
        (place, backward_s * (number + 1) / len(sizes)) for number, place in enumerate(reversed(range(len(sizes))))
    ]
    network = Network(1e15, 0.0, 1e15, 0.0, "gloo")
    given: dict[str, Any] = {"server": INSTANT, "network": network, **changes}
    return Job(profile(*sizes), StepTimes(forward_s, tuple(ready), update_s), 32, **given)


def network(nic: float, inside: float = 1e15, latency_s: float = 0.0) -> Network:
    return Network(nic, latency_s, inside, 0.0, "gloo")


def setup(recipe: str = "imagenet-resnet50", overrides: tuple[str, ...] = (), **cluster: Any) -> Setup:
    given = {"device": "v100", "hosts": 4, "per_host": 8, "link": "25Gbit", **cluster}
    return make_setup(Asked(recipe, overrides, cluster=given))[0]
