"""`phalanx eval --attack`: accuracy before and under an attack, class by class, exact over all samples."""

import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
from pydantic import ValidationError
from rich.console import Console
from torch import Tensor

from phalanx.commands.attack_report import RobustClass, Robustness, in_words, write_robustness
from phalanx.commands.evaluate import made_folder, open_both
from phalanx.commands.loading import Trained
from phalanx.config.adversarial_schema import AttackConfig
from phalanx.config.resolve import Layer
from phalanx.custom import user_code
from phalanx.data.augment.framing import still_framing
from phalanx.data.base import MicroBatch, Source
from phalanx.data.pipeline import evaluation_batches
from phalanx.data.sources.bad_images import BadImages
from phalanx.engine.attack import PixelRange
from phalanx.engine.inputs import Inputs
from phalanx.engine.robustness import RepeatedAttack, Worst, answers
from phalanx.engine.views import views_of
from phalanx.errors import UserError
from phalanx.observe.attack_picture import AttackedSample
from phalanx.observe.progress import progress

EVAL_STEPS = 20  # of pgd, unless told
_DRAWN = 6  # samples in the picture
Numbers = npt.NDArray[np.int64]


@dataclass
class _Found:
    """What is known of the samples so far."""

    labels: list[Numbers] = field(default_factory=list)
    before: list[Numbers] = field(default_factory=list)
    after: list[Numbers] = field(default_factory=list)
    targets: list[Numbers] = field(default_factory=list)
    bad: list[tuple[str, str]] = field(default_factory=list)
    of_class: dict[int, AttackedSample] = field(default_factory=dict)  # to draw: one of each class before others
    others: list[AttackedSample] = field(default_factory=list)


def attack_config(
    attack: str,
    *,
    norm: str | None,
    eps: str | float | None,
    step: str | float | None,
    steps: int | None,
    targeted: bool,
) -> AttackConfig:
    """The attack that a user describes; what is left out is the usual choice of evaluations."""
    given = {"norm": norm, "eps": eps, "step": step, "steps": steps}
    if attack == "pgd" and steps is None:
        given["steps"] = EVAL_STEPS
    named = {name: value for name, value in given.items() if value is not None}
    try:
        config = AttackConfig.model_validate({**named, "attack": attack, "targeted": "random" if targeted else False})
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        said = first["msg"].removeprefix("Value error, ").replace("adversarial.", "")
        where = f"{first['loc'][0]} cannot be {first['input']!r}: " if first["loc"] else ""
        raise UserError(
            f"{where}{said}", why="it describes the attack", remedy="such as pgd, eps 8/255, 20 steps"
        ) from error
    if config.attack in ("none", "free"):
        why = "free is a way to train" if config.attack == "free" else "there would be nothing to measure"
        raise UserError(f"attack cannot be {config.attack!r}", why=why, remedy="pgd or fgsm")
    return config


@user_code()
def measure_attack(
    console: Console,
    place: Path,
    config: AttackConfig,
    restarts: int,
    data: str | None,
    batch_size: int | None,
    device: str,
    precision: str | None,
    out: Path | None,
    settings: Sequence[Layer] = (),
) -> Robustness:
    """Attack the run's own validation data or `data`, and write eval.json, per_class.tsv and attack.png."""
    trained, source, bad = open_both(console, place, data, device, precision, settings)
    if trained.spec.multi_label:
        raise UserError(
            "attacks are for models with one label a sample",
            why="the model may give an image several labels, and there is no one answer to change",
            remedy="leave --attack out",
        )
    folder = made_folder(trained, "eval-attack", data, out)
    begin = time.perf_counter()
    found = _attack_all(trained, source, config, restarts, batch_size or trained.batch_size, console, bad)
    labels, before, after = (
        np.concatenate([np.empty(0, np.int64), *each]) for each in (found.labels, found.before, found.after)
    )
    right, robust = before == labels, (before == labels) & (after == labels)
    reached = float((np.concatenate(found.targets) == after).mean()) if found.targets else None
    result = Robustness(
        attack=in_words(config, restarts),
        top1=float(right.mean()) if len(labels) else 0.0,
        robust_top1=float(robust.mean()) if len(labels) else 0.0,
        target_reached=reached,
        samples=len(labels),
        data=source.description,
        classes=_by_class(trained.spec.classes, labels, right, robust),
        unreadable=found.bad,
        seconds=time.perf_counter() - begin,
        folder=folder,
    )
    drawn = [*found.of_class.values(), *found.others][:_DRAWN]
    write_robustness(trained, config, restarts, result, drawn)
    return result


def _attack_all(
    trained: Trained,
    source: Source,
    config: AttackConfig,
    restarts: int,
    batch_size: int,
    console: Console,
    bad: BadImages,
) -> _Found:
    spec, settings, run = trained.spec, trained.settings, trained.config
    inputs = Inputs(settings, run.augment, spec.mean, spec.std, run.train.seed)
    pixels = PixelRange.of(spec.mean, spec.std, settings.device)
    attack = RepeatedAttack(config, restarts, pixels, len(spec.classes), run.train.seed)
    views = views_of(run.eval)
    batches = evaluation_batches(
        source,
        still_framing(run.data, spec.image_size, spec.margin),
        batch_size,
        prefetch=run.data.prefetch,
        bad=bad,
        pin=settings.gpu is not None,
    )

    def forward(images: Tensor) -> Tensor:
        """The model's answer as evaluation asks it, with all views: the attack sees what is judged."""
        with settings.autocast():
            return sum((weight * trained.model(view) for view, weight in views.of(images)), start=images.new_zeros(()))

    found = _Found()
    with progress(console, "attacked", len(source)) as advance, closing(batches):
        for batch in batches:
            for micro in (each for each in batch.micro if each.count):
                _attack_some(attack, forward, inputs, micro, found)
            found.bad.extend(batch.bad)
            advance(batch.total)
    return found


def _attack_some(
    attack: RepeatedAttack, forward: Callable[[Tensor], Tensor], inputs: Inputs, micro: MicroBatch, found: _Found
) -> None:
    images, labels = inputs.plain(micro)
    worst = attack(forward, images, labels, micro.indices.numpy())
    before, after = answers(worst.before).cpu(), answers(worst.after).cpu()
    found.labels.append(micro.labels.numpy())
    found.before.append(before.numpy())
    found.after.append(after.numpy())
    if worst.targets is not None:
        found.targets.append(worst.targets.cpu().numpy())
    for row in np.flatnonzero((before == micro.labels) & (after != micro.labels)).tolist():
        if len(found.of_class) == _DRAWN:
            break
        label = int(micro.labels[row])
        if label not in found.of_class:
            found.of_class[label] = _sample(attack.pixels, images, worst, row, label)
        elif len(found.others) < _DRAWN:
            found.others.append(_sample(attack.pixels, images, worst, row, label))


def _sample(pixels: PixelRange, images: Tensor, worst: Worst, row: int, label: int) -> AttackedSample:
    before, after = (
        pixels.pixels(each[row : row + 1])[0].permute(1, 2, 0).cpu().numpy() for each in (images, worst.images)
    )
    (sure, answer), (sure_after, answer_after) = (
        (float(each.max()), int(each.argmax())) for each in (worst.before[row].softmax(0), worst.after[row].softmax(0))
    )
    return AttackedSample(before, after, label, (answer, answer_after), (sure, sure_after))


def _by_class(
    names: list[str], labels: Numbers, right: npt.NDArray[np.bool_], robust: npt.NDArray[np.bool_]
) -> list[RobustClass]:
    counts = [np.bincount(each, minlength=len(names)).tolist() for each in (labels, labels[right], labels[robust])]
    return [RobustClass(*row) for row in zip(names, *counts, strict=True)]
