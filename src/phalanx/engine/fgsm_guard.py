"""The guard of FGSM training: notices when the model has learned to fool the attack instead of to resist it."""

import torch
from torch import Tensor, nn

from phalanx.engine.attack import Attack
from phalanx.engine.state import TrainState

_DECIDED = "fgsm_guard"  # in `TrainState.decided`: the step at which FGSM was given up
_FEWEST = 8  # right answers to FGSM, below which nothing can be said
_SAMPLES = 16  # of a micro-batch
_STEPS = 10  # of the attack that is compared with


class FgsmGuard:
    """Compares FGSM with PGD now and then on some samples of the step, and decides once.

    Catastrophic overfitting (Wong et al. 2020): within a few steps the accuracy under FGSM rises, and under PGD falls
    to 0. The counts are whole numbers, summed over all workers, which therefore decide alike. The decision is a part of
    the training state, so a resumed run keeps it.
    """

    samples = _SAMPLES

    def __init__(self, state: TrainState, every: int) -> None:
        self._state, self._every = state, every
        self._counts = [0.0, 0.0]

    @property
    def tripped(self) -> bool:
        return _DECIDED in self._state.decided

    def due(self, step: int) -> bool:
        return not self.tripped and (step + 1) % self._every == 0

    def stronger(self, attack: Attack) -> Attack:
        """What FGSM is compared with."""
        return attack.with_steps(_STEPS, attack.eps / 4)

    def instead(self, attack: Attack) -> Attack:
        """What is used once FGSM is given up: two steps."""
        return attack.with_steps(2, attack.eps / 2)

    @torch.no_grad()
    def compare(self, model: nn.Module, fgsm: Tensor, pgd: Tensor, labels: Tensor) -> None:
        for number, images in enumerate((fgsm, pgd)):
            self._counts[number] += float((model(images).argmax(1) == labels).sum())

    def take(self) -> list[float]:
        """This worker's right answers in the step under FGSM and under PGD."""
        counts, self._counts = self._counts, [0.0, 0.0]
        return counts

    def decide(self, counts: list[float]) -> str:
        """By the counts of all workers. Returns a note where FGSM is given up, and empty text otherwise."""
        fgsm, pgd = (int(each) for each in counts)
        if self.tripped or fgsm < _FEWEST or 2 * pgd >= fgsm:
            return ""
        step = self._state.step + 1
        self._state.decided[_DECIDED] = step
        return (
            f"step {step}: the model resists FGSM alone (right on {fgsm} samples, under PGD on {pgd} of them): "
            "catastrophic overfitting. From here on the attack has two steps"
        )
