"""Smaller images at first (`train.sizes`): what is coarse is learnt from them, and a step takes less time."""

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import nn

from phalanx.config.durations import Duration
from phalanx.engine.inputs import Sizes
from phalanx.engine.loop import StepPlan
from phalanx.errors import UserError


def plan_sizes(asked: Sequence[tuple[int, Duration]], plan: StepPlan, image_size: int) -> Sizes:
    """When which size ends. Whole images follow, of `image_size` pixels a side."""
    steps = [0, *(plan.in_steps(until) for _, until in asked)]
    for (size, until), (before, end) in zip(asked, pairwise(steps), strict=True):
        if size >= image_size:
            raise UserError(
                f"train.sizes: {size} pixels until {until} are not smaller images",
                why=f"whole ones have {image_size}",
                remedy="smaller sizes, or a larger data.image_size",
            )
        if end <= before:
            raise UserError(
                f"train.sizes: {size} pixels until {until} would not be used for a single step",
                why=f"that is step {end}, and what comes before them lasts until step {before}",
                remedy="put them in the order of their ends: [[16, 2ep], [24, 5ep]]",
            )
    return tuple(zip(steps[1:], (size for size, _ in asked), strict=True))


def refuse_unseen_sizes(model: nn.Module, sizes: Sizes, name: str, channels: int) -> None:
    """Before training begins: some models are made for images of one size alone."""
    device = next(model.parameters()).device
    training = model.training
    for _, size in sizes:
        try:
            with torch.no_grad():
                model.eval()(torch.zeros(1, channels, size, size, device=device))
        except Exception as error:  # any line of any model may be the one that objects
            raise UserError(
                f"train.sizes: {name} cannot see images of {size} pixels",
                why=str(error).partition("\n")[0],
                remedy="other sizes, or a model that takes any, such as a ResNet",
            ) from error
    model.train(training)


def tell_sizes(sizes: Sizes, plan: StepPlan, image_size: int) -> dict[str, str]:
    """For what a run prints first, if there is anything to tell."""
    parts = [f"{size} until step {until}" for until, size in sizes]
    whole = f"then {image_size}" if sizes and sizes[-1][0] < plan.total_steps else f"{image_size} never"
    return {"image size": ", ".join([*parts, whole])} if sizes else {}
