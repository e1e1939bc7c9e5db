"""What a worker of a collective job saves beside the optimizer: compression residuals, and a step to go back to."""

from collections.abc import Mapping

import torch
from torch import Tensor

from phalanx.exchange.base import Rescued
from phalanx.exchange.collective.group import CollectiveGroup
from phalanx.exchange.compress.hook_state import HookState
from phalanx.exchange.compress.residuals import residuals_of
from phalanx.optim.update import Update


class CollectiveResiduals:
    """What each worker's DDP hook holds back."""

    def __init__(self, hook: HookState, group: CollectiveGroup) -> None:
        self._hook, self._group = hook, group

    def residuals(self) -> dict[str, Tensor]:
        mine = self._hook.tensors()
        if not mine:
            return {}
        rows = self._group.gather(torch.cat([tensor.flatten() for tensor in mine.values()]))
        return {
            f"{rank}/{name}": part.view(mine[name].shape)
            for rank, row in enumerate(rows)
            for name, part in zip(mine, row.split([tensor.numel() for tensor in mine.values()]), strict=True)
        }

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        self._hook.load(residuals_of(tensors, self._group.share))


class CollectiveRecovery:
    """Each worker has parameters and optimizer: only gradients and residuals change before the update."""

    def __init__(self, update: Update, hook: HookState, rank: int) -> None:
        self._update, self._hook, self._rank = update, hook, rank
        self._marked: dict[str, Tensor] = {}  # residuals at the last step boundary

    def mark(self) -> None:
        self._marked = {name: tensor.clone() for name, tensor in self._hook.tensors().items()}

    def roll_back(self) -> None:
        self._update.clear()
        self._hook.load(self._marked)

    def rescue(self, step: int) -> Rescued:
        residuals = {f"{self._rank}/{name}": tensor for name, tensor in self._hook.tensors().items()}
        return Rescued(*self._update.state(), residuals)
