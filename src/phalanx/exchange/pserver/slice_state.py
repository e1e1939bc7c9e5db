"""A slice on its server: parameters, optimizer state, version, and the pushes that wait."""

from collections.abc import Mapping

import torch
from torch import Tensor

from phalanx.config.patterns import factor_of
from phalanx.config.schema import OptimConfig
from phalanx.exchange.pserver.policy import Policy, Push
from phalanx.exchange.pserver.slice_undo import PreviousStep, pack_whole
from phalanx.exchange.pserver.slices import Layout, Slice, views
from phalanx.exchange.pserver.state import pack, unpack
from phalanx.exchange.pserver.to_half import to_half
from phalanx.optim.schedule import Schedule
from phalanx.optim.update import Update


class SliceState:
    """One slice. Its update is the trainer's own `Update`, over pieces instead of parameters."""

    def __init__(
        self,
        slice_: Slice,
        memory: Tensor,
        layouts: Mapping[str, Layout],
        exempt: set[str],
        config: OptimConfig,
        schedule: Schedule,
        *,
        keep_previous: bool = False,
    ) -> None:
        self.slice, self.memory = slice_, memory
        self.reached: int | None = None  # the next step; None until one was applied here
        self._previous = PreviousStep() if keep_previous else None
        self.version = 0
        self._half: tuple[int, Tensor] | None = None
        self.filled = False  # whether the parameters have arrived
        self.arrived: dict[int, Push] = {}  # by rank: not applied yet
        self.applied: dict[int, Push] = {}  # by rank: no reply sent yet
        self.answered: dict[int, Push] = {}  # by rank: the last one with a reply, in case that got lost
        self.clocks: dict[int, int] = {}
        self._params = views(memory, slice_, layouts)
        named = {
            piece_name(piece.name, piece.start): param for piece, param in zip(slice_.pieces, self._params, strict=True)
        }
        # Whether a piece decays, and its learning rate, follow from the parameter that it was cut from.
        no_decay = [piece_name(piece.name, piece.start) for piece in slice_.pieces if piece.name in exempt]
        factors = {piece_name(each.name, each.start): factor_of(each.name, config.rates) for each in slice_.pieces}
        self._update = Update(named, no_decay, config, schedule, factors)

    def known(self, rank: int) -> Push | None:
        """A worker's latest push, in whichever state."""
        return self.arrived.get(rank) or self.applied.get(rank) or self.answered.get(rank)

    def forget(self, rank: int) -> None:
        """A worker has left the job. Its gradients that were not applied are dropped."""
        for pushes in (self.arrived, self.applied, self.answered):
            pushes.pop(rank, None)
        self.clocks.pop(rank, None)

    def arrive(self, push: Push) -> None:
        self.answered.pop(push.rank, None)
        self.arrived[push.rank] = push
        # A void push may not know its step; it still is one.
        self.clocks[push.rank] = push.step + 1 if push.step >= 0 else self.clocks.get(push.rank, 0) + 1

    @torch.no_grad()
    def apply(self, pushes: list[Push], policy: Policy) -> None:
        """Sum the pushes in the order given and update with them. Nothing else reads the slice meanwhile."""
        self._advance_to(max(push.step for push in pushes))
        for push in pushes:
            self.applied[push.rank] = self.arrived.pop(push.rank)
            push.staleness = self.version - push.based_on
        if any(push.void for push in pushes) or all(push.empty for push in pushes):
            return
        for param, gradient in zip(self._params, _sum(pushes, policy.gain), strict=True):
            param.grad = gradient
        step = max(push.step for push in pushes)
        rate = self._update(step, policy.scale(max(push.staleness for push in pushes)))
        self._update.clear()
        self.version += 1
        for push in pushes:
            push.rate = rate

    def _advance_to(self, step: int) -> None:
        """Note which step is applied now; a void one without a number changes nothing."""
        if step >= 0:
            if self._previous is not None:
                self._previous.keep(step, self.memory, *self._update.state())
            self.reached = step + 1

    def state(self) -> bytes:
        return pack(*self._update.state())

    def before(self, step: int) -> bytes:
        """Parameters and optimizer state before a step: as they are now, or before the last update; else nothing."""
        if self.filled and self.reached in (None, step):
            return pack_whole(self.memory, *self._update.state())
        if self._previous is not None and self._previous.step == step:
            return self._previous.packed()
        return b""

    def load(self, payload: memoryview) -> None:
        self._update.load(*unpack(payload))

    def half(self, kind: str) -> Tensor:
        """The parameters in 16 bits, made once for all workers that get this version."""
        if self._half is None or self._half[0] != self.version:
            self._half = (self.version, to_half(self.memory, kind))
        return self._half[1]


def piece_name(name: str, start: int) -> str:
    """The name of a piece within its slice."""
    return f"{name}@{start}"


def _sum(pushes: list[Push], gain: float) -> list[Tensor | None]:
    """By piece, in place in the first worker's memory, which is the server's until that worker gets its reply."""
    total = list(pushes[0].gradients)
    for push in pushes[1:]:
        pairs = [(mine, more) for mine, more in zip(total, push.gradients, strict=True) if mine is not None]
        both = [(mine, more) for mine, more in pairs if more is not None]
        if both:
            torch._foreach_add_([mine for mine, _ in both], [more for _, more in both])
        total = [more if mine is None else mine for mine, more in zip(total, push.gradients, strict=True)]
    there = [gradient for gradient in total if gradient is not None]
    if gain != 1:
        torch._foreach_mul_(there, gain)
    return total
