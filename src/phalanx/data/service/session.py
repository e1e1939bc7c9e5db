"""A trainer as its data server knows it, and the memory that both share on one machine."""

from dataclasses import dataclass
from typing import Any

import torch

from phalanx.data.service.wire import NO_SLOT
from phalanx.net import shared_memory as memory
from phalanx.net.control import Refused

_LONGEST_NAME = 200


@dataclass(frozen=True, eq=False)
class Session:
    """A trainer that expects the batches that this server makes; new each time that it joins."""

    number: int
    identity: bytes
    name: str
    area: torch.Tensor | None  # shared with the trainer, in slots of equal size
    slot_bytes: int
    watch: memory.ProcessWatch | None

    @classmethod
    def of(cls, number: int, identity: bytes, sent: dict[str, Any]) -> "Session":
        """The session of a trainer, from what it sends when it joins."""
        try:
            slot_bytes, address = int(sent["slot_bytes"]), sent["area"]
            if slot_bytes < 0:
                raise Refused("slot")
            area = memory.attach(address, int(address["size"])) if address is not None else None
            watch = memory.ProcessWatch(int(address["pid"])) if area is not None else None
            return cls(number, identity, str(sent["name"])[:_LONGEST_NAME], area, slot_bytes, watch)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise Refused("garbage") from error

    def place(self, slot: int) -> torch.Tensor | None:
        """The memory of a slot; None where the pixels have to be sent."""
        if self.area is None or slot == NO_SLOT:
            return None
        start = memory.TOKEN_BYTES + slot * self.slot_bytes
        if not (slot >= 0 and start + self.slot_bytes <= len(self.area)):
            raise Refused("slot")
        return self.area[start : start + self.slot_bytes]

    @property
    def ended(self) -> bool:
        return self.watch is not None and self.watch.ended()

    def close(self) -> None:
        if self.watch is not None:
            self.watch.close()
