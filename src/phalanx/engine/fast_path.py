"""The fast path of CPUs: which layers of a model take it, and how all workers of a job come to the same algorithms."""

import json
from collections.abc import Sequence

import torch
from torch import nn

from phalanx.config.schema import FastPath
from phalanx.engine.convolution import TunedConv2d, agree_on_forms, choosing, saved_forms, tune_convolutions
from phalanx.engine.fusion import fuse_norms
from phalanx.engine.settings import Settings
from phalanx.engine.tuning import machine
from phalanx.exchange.meeting import Meeting


def prepare(model: nn.Module, fast_path: FastPath, *, to_train: bool) -> None:
    """Have layers take the fast path. What is saved and exported does not change."""
    if fast_path == "off":
        return
    tune_convolutions(model, native=fast_path == "native")
    if to_train and fast_path == "native":
        fuse_norms(model)


def agree_on_algorithms(
    model: nn.Module, settings: Settings, meeting: Meeting, rank: int, images: Sequence[tuple[int, int, int, int]]
) -> str:
    """All workers take the first one's algorithms for their convolutions. What the user should know of it, if anything.

    `images` are the shapes that training will see. Who resumes a run has its algorithms already, and keeps them.
    """
    convolutions = [module for module in model.modules() if isinstance(module, TunedConv2d)]
    if not convolutions:
        return ""
    if rank == 0 and not all(module.known for module in convolutions):
        _choose_for(model, settings, images)
    agreed = json.loads(meeting.gather("convolutions", json.dumps(saved_forms(model)) if rank == 0 else "")[0])
    agree_on_forms(model, agreed)
    before, here = (on.partition(",")[0] for on in (agreed["on"], machine()))  # the CPU; not its threads
    if rank > 0 or before == here:
        return ""
    return (
        f"convolutions keep the algorithms that were chosen on {before}; this is {here}, where others may be faster: "
        "machine.fast_path=auto chooses anew (and changes the numbers)"
    )


@torch.no_grad()
def _choose_for(model: nn.Module, settings: Settings, images: Sequence[tuple[int, int, int, int]]) -> None:
    """Show the model blank images: each convolution then knows the shapes that it will be given."""
    training = model.training
    model.eval()
    for shape in images:
        blank = torch.zeros(shape, device=settings.device).contiguous(memory_format=settings.memory_format)
        with choosing(model), settings.autocast():
            model(blank)
    model.train(training)
