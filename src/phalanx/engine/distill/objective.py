"""The objectives of distillation: the labels' loss and a teacher's, by their shares."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from phalanx.config.schema import DistillConfig
from phalanx.data.augment.mixing import Targets
from phalanx.engine.distill import losses
from phalanx.engine.distill.extras import Extras
from phalanx.engine.distill.features import Features, TeacherLayers
from phalanx.engine.distill.logits import TeacherLogits
from phalanx.engine.distill.peer import Peer
from phalanx.engine.loss import Loss, training_loss
from phalanx.engine.objective import Forward, View


@dataclass(frozen=True)
class Distilled:
    """Learning from the logits of teachers, which see the very images that the student sees."""

    loss: Loss  # of the labels
    config: DistillConfig
    teachers: TeacherLogits

    def __call__(self, view: View, forward: Forward) -> tuple[Tensor, Tensor]:
        logits = forward(view.images)
        answers = self.teachers.logits(view)  # teacher processes compute them while the student does
        value = sum(
            (
                weight * answer_loss(self.config, logits.float(), answer, view.targets)
                for weight, answer in zip(self.config.weights, answers, strict=True)
            ),
            start=logits.new_zeros((), dtype=torch.float32),
        )
        return logits, shared(self.config.share, value, logits, view.targets, self.loss)


@dataclass(frozen=True)
class FeatureDistilled:
    """Learning from layers inside of a teacher."""

    loss: Loss
    config: DistillConfig
    features: Features
    teacher: TeacherLayers

    def __call__(self, view: View, forward: Forward) -> tuple[Tensor, Tensor]:
        with _using(self.features):
            wanted = self.teacher(view.images)
            logits = forward(view.images)
            value = self.features.loss(wanted)
        return logits, shared(self.config.share, value, logits, view.targets, self.loss)


@dataclass(frozen=True)
class Mutual:
    """Two students that learn from each other's answers (deep mutual learning: Zhang et al., 2018)."""

    loss: Loss
    config: DistillConfig
    peer: Peer

    def __call__(self, view: View, forward: Forward) -> tuple[Tensor, Tensor]:
        with _using(self.peer):
            logits, other = forward(view.images), self.peer(view.images)
        share, degrees = self.config.share, self.config.degrees
        mine, theirs = (
            shared(share, losses.kl(one.float(), two.detach().float(), degrees), one, view.targets, self.loss)
            for one, two in ((logits, other), (other, logits))
        )
        return logits, mine + (theirs - theirs.detach())  # both get gradients; the student's own loss is reported


def answer_loss(config: DistillConfig, student: Tensor, teacher: Tensor, targets: Targets) -> Tensor:
    """The loss of one teacher's logits."""
    degrees = config.degrees
    if config.loss == "kl":
        return losses.kl(student, teacher, degrees)
    if config.loss == "js":
        return losses.js(student, teacher, degrees)
    if config.loss == "dist":
        return losses.dist(student, teacher, degrees)
    best = teacher.argmax(1)  # the right class of a sample without a label

    def decoupled(student: Tensor, labels: Tensor) -> Tensor:
        right = torch.where(labels < 0, best, labels)
        return losses.dkd(student, teacher, right, degrees, config.dkd_target, config.dkd_others)

    return training_loss(student, targets, decoupled)


def shared(share: float, value: Tensor, logits: Tensor, targets: Targets, loss: Loss) -> Tensor:
    """Teacher's and labels' loss by their shares. Labels that do not count are not looked at."""
    if share == 1:
        return value
    return share * value + (1 - share) * training_loss(logits, targets, loss)


def of_labelled(loss: Loss, share: float, logits: Tensor, labels: Tensor) -> Tensor:
    """The labels' loss where some samples have none (-1): its sum over those that have one, for each of n · share.

    A micro-batch has n · share of them, rounded. Dividing by this and not by their number makes a step's gradient the
    same however it is cut into micro-batches.
    """
    known = labels >= 0
    count = int(known.sum())
    if not count:
        return logits.sum() * 0.0
    return loss(logits[known], labels[known]) * (count / (len(labels) * share))


@contextmanager
def _using(extras: Extras) -> Iterator[None]:
    extras.used = True
    try:
        yield
    finally:
        extras.used = False
