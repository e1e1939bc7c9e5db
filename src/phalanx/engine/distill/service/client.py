"""The teachers of a run, as one trainer sees them when other processes compute their logits."""

import os
import platform
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from phalanx.data.base import Batch, MicroBatch
from phalanx.engine.distill.service.body import SentView, pack_view
from phalanx.engine.distill.service.requests import Asked, TeacherRequests
from phalanx.engine.objective import View
from phalanx.errors import UserError
from phalanx.net.encryption import Encrypt

_Place = tuple[int, int, int, int]  # epoch, start, step, number of the micro-batch


class ServedTeachers:
    """Logits from teacher processes: a `TeacherLogits` that can be told of a batch before its step."""

    def __init__(
        self,
        servers: Mapping[str, str],
        terms: Mapping[str, Any],
        *,
        name: str = "trainer-0",
        notify: Callable[[str], None] = lambda text: None,
        timeout_s: float = 120.0,
        encrypt: Encrypt = "auto",
    ) -> None:
        """`servers` has a key for each address; `terms` as `terms_of_views` makes them."""
        full = {address if "://" in address else f"tcp://{address}": key for address, key in servers.items()}
        who = f"{name} ({platform.node()}, process {os.getpid()})"
        self.requests = TeacherRequests(full, {**terms, "name": who}, notify, timeout_s=timeout_s, encrypt=encrypt)
        self._asked: dict[_Place, Asked] = {}

    def announce(self, batch: Batch, step: int) -> None:
        """A later step will need the logits of this batch."""
        for micro in batch.micro:
            if micro.count:
                self.announce_micro(micro, batch.epoch, batch.start, step)

    def announce_micro(self, micro: MicroBatch, epoch: int, start: int, step: int) -> None:
        self._ask(SentView(micro, epoch, start, step))

    def logits(self, view: View) -> Tensor:
        """The teachers' logits of a view; waits for them."""
        asked = self._ask(SentView(view.micro, view.epoch, view.start, view.step))
        asked.done.wait()
        del self._asked[_place(view.epoch, view.start, view.step, view.micro)]
        for place in [each for each in self._asked if each[2] < view.step]:
            self.requests.forget(self._asked.pop(place))  # announced for a step that never came
        if isinstance(asked.outcome, UserError):
            raise asked.outcome
        assert isinstance(asked.outcome, Tensor)
        if asked.outcome.shape[1] != len(view.images):
            raise UserError(
                "a teacher answered for other samples",
                why=f"{asked.outcome.shape[1]} instead of {len(view.images)}",
                remedy="start `phalanx serve-teacher` with this version of phalanx",
            )
        return asked.outcome.to(view.images.device, torch.float32)

    def close(self) -> None:
        self.requests.close()

    def _ask(self, view: SentView) -> Asked:
        place = _place(view.epoch, view.start, view.step, view.micro)
        if place not in self._asked:
            self._asked[place] = self.requests.ask(*pack_view(view))
        return self._asked[place]


def _place(epoch: int, start: int, step: int, micro: MicroBatch) -> _Place:
    return epoch, start, step, micro.number
