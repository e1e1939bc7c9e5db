"""A trainer's memory for the batches of a data server on the same machine: the server writes, no one copies."""

import weakref
from collections import deque

import torch

from phalanx.net import shared_memory as memory
from phalanx.net.control import Refused

# Batches that a trainer holds without a copy: one that it trains on, one that waits for it, one between the two.
# If it holds more, it gets copies, so that it may hold as many as it likes.
_IN_USE = 3


class Slots:
    """`window` slots for batches that are leased or wait for the trainer, and a few for those that it uses."""

    def __init__(self, window: int, slot_bytes: int) -> None:
        self.slot_bytes = slot_bytes
        self._count = window + _IN_USE
        self.area = memory.create(memory.TOKEN_BYTES + self._count * slot_bytes)
        self._free = deque(range(self._count))
        self._reserved = 0

    def take(self) -> int | None:
        """A slot for a batch to lease; None if all are taken."""
        if not self._free:
            return None
        self._reserved += 1
        return self._free.popleft()

    def put_back(self, slot: int) -> None:
        """Free a slot to which nothing was written, and nothing will be."""
        self._reserved -= 1
        self._free.append(slot)

    def pixels(self, slot: int, length: int) -> torch.Tensor:
        """The bytes that were written to a slot. The slot is free again when no tensor over this memory is left."""
        if not 0 < length <= self.slot_bytes:
            raise Refused("length")
        start = memory.TOKEN_BYTES + slot * self.slot_bytes
        view = memory.raw(self.area.bytes)[start : start + length]
        weakref.finalize(view, self._free.append, slot).atexit = False
        return torch.frombuffer(view, dtype=torch.uint8)

    def hand_out(self) -> bool:
        """The trainer takes a batch. Whether it may keep its slot; otherwise it has to be copied."""
        self._reserved -= 1
        return self._count - len(self._free) - self._reserved <= _IN_USE
