"""Progressive resizing (`train.sizes`): smaller images in the first epochs, for faster steps."""

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import nn

from phalanx.config.durations import Duration
from phalanx.engine.inputs import Sizes
from phalanx.engine.loop import StepPlan
from phalanx.errors import UserError


def plan_sizes(asked: Sequence[tuple[int, Duration]], plan: StepPlan, image_size: int) -> Sizes:
    """At which step each size ends. After the last, images have `image_size` pixels a side."""
    steps = [0, *(plan.in_steps(until) for _, until in asked)]
    for (size, until), (before, end) in zip(asked, pairwise(steps), strict=True):
        if size >= image_size:
            raise UserError(
                f"train.sizes: {size} pixels until {until} is no smaller size",
                why=f"the full size is {image_size}",
                remedy="smaller sizes, or a larger data.image_size",
            )
        if end <= before:
            raise UserError(
                f"train.sizes: {size} pixels until {until} would not be used in any step",
                why=f"it ends at step {end}, and the size before it ends at step {before}",
                remedy="sort the sizes by their ends: [[16, 2ep], [24, 5ep]]",
            )
    return tuple(zip(steps[1:], (size for size, _ in asked), strict=True))


def refuse_unseen_sizes(model: nn.Module, sizes: Sizes, name: str, channels: int) -> None:
    """Try each size before training: some models take one image size only."""
    device = next(model.parameters()).device
    training = model.training
    for _, size in sizes:
        try:
            with torch.no_grad():
                model.eval()(torch.zeros(1, channels, size, size, device=device))
        except Exception as error:  # a model may raise anything
            raise UserError(
                f"train.sizes: {name} cannot take images of {size} pixels",
                why=str(error).partition("\n")[0],
                remedy="other sizes, or a model that takes any size, such as a ResNet",
            ) from error
    model.train(training)


def describe_sizes(sizes: Sizes, plan: StepPlan, image_size: int) -> dict[str, str]:
    """The sizes as one of the decisions of a run; empty if there is only one."""
    parts = [f"{size} until step {until}" for until, size in sizes]
    full = f"then {image_size}" if sizes and sizes[-1][0] < plan.total_steps else f"{image_size} never"
    return {"image size": ", ".join([*parts, full])} if sizes else {}
