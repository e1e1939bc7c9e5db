"""A slice as it was before its last update: after the loss of a worker, slices may be one step apart."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from phalanx.exchange.pserver.state import pack

VALUES = "values"  # the parameters beside the optimizer's state; no parameter is called that: names there have a slash


def pack_whole(memory: Tensor, tensors: Mapping[str, Tensor], scalars: Mapping[str, Any]) -> bytes:
    """Parameters and optimizer state of a slice in one message."""
    return pack({VALUES: memory, **tensors}, scalars)


class PreviousStep:
    """A copy of parameters and optimizer state. Costs their size in memory, and one copy an update."""

    def __init__(self) -> None:
        self.step: int | None = None  # the step before which the copy was made
        self._values = torch.empty(0)
        self._tensors: dict[str, Tensor] = {}
        self._scalars: Mapping[str, Any] = {}

    def keep(self, step: int, memory: Tensor, tensors: Mapping[str, Tensor], scalars: Mapping[str, Any]) -> None:
        if self._values.shape != memory.shape or self._tensors.keys() != tensors.keys():  # the first update makes state
            self._values = torch.empty_like(memory)
            self._tensors = {name: torch.empty_like(tensor) for name, tensor in tensors.items()}
        self._values.copy_(memory)
        for name, tensor in tensors.items():
            self._tensors[name].copy_(tensor)
        self._scalars, self.step = scalars, step

    def packed(self) -> bytes:
        return pack_whole(self._values, self._tensors, self._scalars)
