"""When gradients become an update, and when a worker may go on: sync, async, ssp:S."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor


@dataclass(slots=True)
class Push:
    """One worker's gradient of one slice for one step, and, once it is applied, its rate and staleness."""

    rank: int
    sequence: int
    step: int
    based_on: int  # the version that the worker had when it computed this
    gradients: list[Tensor | None]  # by piece; None where the worker has none
    void: bool = False  # the step overflowed on that worker and must not be applied
    rate: float = 0.0
    staleness: int = 0

    @property
    def empty(self) -> bool:
        return all(gradient is None for gradient in self.gradients)


class Policy(Protocol):
    """Two decisions about a slice, and how an update is scaled. `live` are the ranks that count."""

    still: bool  # nothing changes a slice between a worker's pull and its next push, so readers need no copy of it
    gain: float  # gradients arrive weighted by the worker's share of the samples; this undoes it

    def due(self, arrived: Mapping[int, Push], live: Collection[int]) -> list[Push]:
        """Which of the arrived pushes to apply now, together."""
        ...

    def may_go_on(self, push: Push, clocks: Mapping[int, int], live: Collection[int]) -> bool:
        """Whether the worker of an applied push gets its reply now. A clock counts the steps that a rank pushed."""
        ...

    def scale(self, staleness: int) -> float:
        """What the schedule's rate is multiplied with."""
        ...


class Sync:
    """A slice updates when every live worker's gradient is in, summed in rank order: arrival does not matter."""

    still, gain = True, 1.0

    def due(self, arrived: Mapping[int, Push], live: Collection[int]) -> list[Push]:
        return [arrived[rank] for rank in sorted(arrived)] if live and arrived.keys() >= set(live) else []

    def may_go_on(self, push: Push, clocks: Mapping[int, int], live: Collection[int]) -> bool:
        return True

    def scale(self, staleness: int) -> float:
        return 1.0


class Async:
    """Every gradient is applied as it comes.

    A worker's push is one of `world` that make up a step: its gradient counts in full, at 1/world of the rate. So a
    step moves the parameters as far as in sync mode, with weight decay and with Adam too.
    """

    still = False

    def __init__(self, world: int, damping: bool) -> None:
        self.gain = float(world)
        self._world, self._damping = world, damping

    def due(self, arrived: Mapping[int, Push], live: Collection[int]) -> list[Push]:
        return [next(iter(arrived.values()))] if arrived else []

    def may_go_on(self, push: Push, clocks: Mapping[int, int], live: Collection[int]) -> bool:
        return True

    def scale(self, staleness: int) -> float:
        return 1 / self._world / (1 + staleness if self._damping else 1)


class Ssp(Async):
    """async with a bound: after step s a worker waits until the slowest live one has pushed step s - bound."""

    def __init__(self, world: int, damping: bool, bound: int) -> None:
        super().__init__(world, damping)
        self._bound = bound

    def may_go_on(self, push: Push, clocks: Mapping[int, int], live: Collection[int]) -> bool:
        slowest = min((clocks.get(rank, 0) for rank in live), default=clocks[push.rank])
        return slowest > clocks[push.rank] - 1 - self._bound


def make_policy(mode: str, world: int, damping: bool) -> Policy:
    """The policy that a mode names: sync, async or ssp:S."""
    name, _, bound = mode.partition(":")
    if name == "ssp":
        return Ssp(world, damping, int(bound))
    return Async(world, damping) if name == "async" else Sync()
