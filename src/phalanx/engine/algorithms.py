"""All workers of a job compute convolutions by the same algorithms: those that the first worker chose."""

import json
from collections.abc import Sequence

import torch
from torch import nn

from phalanx.cpu.convolution import TunedConv2d, choosing, saved_algorithms, set_algorithms
from phalanx.cpu.tuning import machine
from phalanx.exchange.rendezvous import Rendezvous
from phalanx.machine.settings import Settings


def agree_on_algorithms(
    model: nn.Module, settings: Settings, rendezvous: Rendezvous, rank: int, images: Sequence[tuple[int, int, int, int]]
) -> str:
    """All workers take the first one's algorithms for their convolutions. What the user should know of it, if anything.

    `images` are the shapes that training will see. Who resumes a run has its algorithms already, and keeps them.
    """
    convolutions = [module for module in model.modules() if isinstance(module, TunedConv2d)]
    if not convolutions:
        return ""
    if rank == 0 and not all(module.known for module in convolutions):
        _choose_for(model, settings, images)
    agreed = json.loads(rendezvous.gather("convolutions", json.dumps(saved_algorithms(model)) if rank == 0 else "")[0])
    set_algorithms(model, agreed)
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
