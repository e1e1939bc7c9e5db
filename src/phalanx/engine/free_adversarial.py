"""Free adversarial training: one backward pass gives both the gradients of the weights and the next attack."""

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from phalanx.config.schema import AdversarialConfig
from phalanx.engine.attack import Attack, PixelRange
from phalanx.engine.attack_draws import first_changes
from phalanx.engine.objective import Forward, Objective, View


@dataclass(frozen=True)
class _Carried:
    """The change of a micro-batch's images that its last update has left, in pixels."""

    place: tuple[int, int]  # epoch and start of its batch
    change: Tensor

    def is_of(self, view: View) -> bool:
        return self.place == (view.epoch, view.start) and self.change.shape == view.images.shape


@dataclass(frozen=True)
class FreeAdversarial:
    """The inner objective of changed images, where each batch comes several times in a row (Shafahi et al. 2019).

    A batch's first change is drawn from (seed, epoch, sample). The paper goes on with the change that the batch before
    has left, which another number of workers would place at other samples. So nothing outlives a batch, and a run that
    is saved between batches needs no more than its weights.
    """

    config: AdversarialConfig
    inner: Objective
    pixels: PixelRange
    seed: int
    carried: dict[int, _Carried] = field(default_factory=dict)  # by number of the micro-batch

    def __call__(self, view: View, forward: Forward) -> tuple[Tensor, Tensor]:
        attack, change = Attack.of(self.config), self._change(view)
        clean = self.pixels.pixels(view.images)
        seen = (view.images + change / self.pixels.std).requires_grad_()

        def carry(gradient: Tensor) -> None:
            following = attack.next_change(change, gradient, clean, self.pixels)
            self.carried[view.micro.number] = _Carried((view.epoch, view.start), following.detach())

        seen.register_hook(carry)
        return self.inner(replace(view, images=seen), forward)

    def _change(self, view: View) -> Tensor:
        carried = self.carried.get(view.micro.number)
        if view.step % self.config.updates_per_batch and carried is not None and carried.is_of(view):
            return carried.change
        if not self.config.random_start:
            return torch.zeros_like(view.images)
        config, indices = self.config, view.micro.indices.numpy()
        start = first_changes(view.images, config.norm, config.eps, self.seed, "start", view.epoch, indices)
        return Attack.of(config).first_change(start, view.images, self.pixels)
