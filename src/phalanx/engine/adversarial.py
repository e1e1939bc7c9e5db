"""Adversarial training: an objective that attacks the images of a view before another objective sees them."""

from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from phalanx.config.schema import AdversarialConfig
from phalanx.data.augment.mixing import Targets
from phalanx.engine.attack import Attack, Loss, PixelRange
from phalanx.engine.attack_draws import chosen, first_changes, wrong_classes
from phalanx.engine.attacked_model import attacked
from phalanx.engine.fgsm_guard import FgsmGuard
from phalanx.engine.objective import Forward, Objective, View


@dataclass(frozen=True)
class Adversarial:
    """The inner objective, of attacked images: a pure function of the weights and the view.

    `model` is the one that is trained. The attack does not use `forward`, which belongs to the exchange of gradients.
    """

    config: AdversarialConfig
    inner: Objective
    model: nn.Module
    pixels: PixelRange
    num_classes: int
    seed: int
    guard: FgsmGuard | None = None

    def __call__(self, view: View, forward: Forward) -> tuple[Tensor, Tensor]:
        images = self.attack(view)
        if self.config.loss == "trades":
            return self._trades(view, images, forward)
        return self.inner(replace(view, images=images), forward)

    def attack(self, view: View) -> Tensor:
        """The images of a view, attacked, apart from the share that stays clean."""
        with attacked(self.model, self.config.batch_norm):
            loss, start, attack = self._loss(view), self._start(view), self._attack()
            images = attack(self.model, view.images, start, loss, self.pixels)
            if self.guard is not None and self.guard.due(view.step):
                some = slice(self.guard.samples)
                stronger = self.guard.stronger(attack)(self.model, view.images[some], start[some], loss, self.pixels)
                self.guard.compare(self.model, images[some], stronger, view.targets.labels[some])
        if not self.config.mix:
            return images
        clean = chosen(self.config.mix, self.seed, "clean", view.epoch, view.micro.indices.numpy())
        kept = torch.from_numpy(clean).to(images.device)[:, None, None, None]
        return torch.where(kept, view.images, images).contiguous(memory_format=_layout(view.images))

    def _attack(self) -> Attack:
        attack = Attack.of(self.config)
        return self.guard.instead(attack) if self.guard is not None and self.guard.tripped else attack

    def _start(self, view: View) -> Tensor:
        config, indices = self.config, view.micro.indices.numpy()
        if not config.random_start:
            return torch.zeros_like(view.images)
        start = first_changes(view.images, config.norm, config.eps, self.seed, "start", view.epoch, indices)
        if config.clean_start:
            start[torch.from_numpy(chosen(config.clean_start, self.seed, "clean start", view.epoch, indices))] = 0.0
        return start

    def _loss(self, view: View) -> Loss:
        """What the attack increases: cross-entropy, whatever the loss of training is; or the distance of answers."""
        if self.config.loss == "trades":
            with torch.no_grad():
                answers = self.model(view.images).float().softmax(1)
            return lambda logits: F.kl_div(logits.log_softmax(1), answers, reduction="sum")
        if self.config.targeted:
            indices = view.micro.indices.numpy()
            wrong = wrong_classes(view.targets.labels, self.num_classes, self.seed, view.epoch, indices)
            return lambda logits: -F.cross_entropy(logits, wrong[: len(logits)], reduction="sum")
        return lambda logits: _cross_entropy(logits, view.targets)

    def _trades(self, view: View, images: Tensor, forward: Forward) -> tuple[Tensor, Tensor]:
        """Clean and attacked images in one forward pass: update methods expect one for each micro-batch."""
        answers: list[Tensor] = []

        def both(clean: Tensor) -> Tensor:
            answers.extend(forward(torch.cat([clean, images])).chunk(2))
            return answers[0]

        _, loss = self.inner(view, both)
        clean, robust = (each.float() for each in answers)
        distance = F.kl_div(robust.log_softmax(1), clean.softmax(1), reduction="batchmean")
        return robust, loss + self.config.beta * distance


def _cross_entropy(logits: Tensor, targets: Targets) -> Tensor:
    """Of plain or mixed targets, summed over samples, of which there may be fewer than targets."""
    count = len(logits)
    value = F.cross_entropy(logits, targets.labels[:count], reduction="sum")
    if targets.other_labels is None:
        return value
    return targets.lam * value + (1 - targets.lam) * F.cross_entropy(
        logits, targets.other_labels[:count], reduction="sum"
    )


def _layout(images: Tensor) -> torch.memory_format:
    last = images.is_contiguous(memory_format=torch.channels_last)
    return torch.channels_last if last else torch.contiguous_format


def adversarial_notes(config: AdversarialConfig, *, workers: int) -> list[str]:
    """What is trained on, for the start of a run."""
    if not config.on:
        return []
    if config.attack == "free":
        return [
            f"adversarial training: free, within {config.norm} {config.eps:.4g}: each batch is used for "
            f"{config.updates_per_batch} updates in a row. An epoch of train.length and of other durations is as many "
            "updates as without; epochs that are reported are passes over the data, so many times fewer"
        ]
    attack = Attack.of(config)
    steps = f"{attack.steps} steps" if attack.steps > 1 else "one step"
    notes = [
        f"adversarial training: {config.attack} of {steps} within {config.norm} {config.eps:.4g}; a training step has "
        f"{attack.steps} more passes, and train accuracy is that of attacked images"
    ]
    if config.batch_norm == "eval" and workers > 1:
        notes.append(
            "adversarial.batch_norm=eval attacks with running statistics, of which each worker has its own: results "
            "depend on the number of workers (train: they do not)"
        )
    return notes
