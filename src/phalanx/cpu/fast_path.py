"""The interface of `phalanx.cpu`: prepare a model, choose its convolution algorithms, save and restore the choice."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from rich.console import Console
from torch import nn

from phalanx.config.schema import FastPath
from phalanx.cpu import tuning
from phalanx.cpu.convolution import ConvAlgorithms, TunedConv2d, tune_convolutions
from phalanx.cpu.fusion import fuse_norms
from phalanx.machine.settings import Settings
from phalanx.machine.timings import machine
from phalanx.observe.progress import progress


def prepare(model: nn.Module, fast_path: FastPath, *, to_train: bool) -> None:
    """Switch the model's layers to the fast path, in place. State dicts and exported models do not change."""
    if fast_path == "off":
        return
    tune_convolutions(model, native=fast_path == "native")
    if to_train and fast_path == "native":
        fuse_norms(model)


@torch.no_grad()
def choose(model: nn.Module, shapes: Sequence[tuple[int, int, int, int]], settings: Settings) -> str:
    """Choose algorithms for batches of these shapes, unless a checkpoint has brought a choice.

    Returns a note for the log, empty where nothing was timed. The model sees blank images in eval mode: its state does
    not change. What takes long shows how far it is.
    """
    tuned = [module for _, module in _tuned(model)]
    if all(module.known for module in tuned):
        return ""
    training = model.training
    model.eval()
    with progress(Console(stderr=True), "convolutions timed", len(tuned) * len(shapes), after_s=1.0) as advance:
        for shape in shapes:
            blank = torch.zeros(shape, device=settings.device).contiguous(memory_format=settings.memory_format)
            with _choosing(tuned, advance), settings.autocast():
                model(blank)
    model.train(training)
    return tuning.report()


def state(model: nn.Module) -> dict[str, Any]:
    """The chosen algorithms, as JSON for a checkpoint. A resumed run needs the same ones: others round differently."""
    tuned = list(_tuned(model))
    algorithms = {name: {size: list(each) for size, each in module.known.items()} for name, module in tuned}
    on = next((module.chosen_on for _, module in tuned if module.chosen_on), machine())
    return {"on": on, "of": {name: known for name, known in algorithms.items() if known}}


def load(model: nn.Module, saved: Mapping[str, Any]) -> None:
    """Use the algorithms that `state` has saved. Convolutions that it does not name keep theirs."""
    of = saved.get("of", {})
    for name, module in _tuned(model):
        if isinstance(of.get(name), Mapping):
            module.kept = {size: ConvAlgorithms(*algorithms) for size, algorithms in of[name].items()}
            module.chosen_on = str(saved.get("on", ""))


def forget(model: nn.Module) -> None:
    """Drop all chosen and loaded algorithms."""
    for _, module in _tuned(model):
        module.kept, module.algorithms, module.chosen_for = {}, None, ("", 0, torch.float32)
        module.chosen_on = ""


def agree(model: nn.Module, chosen: Mapping[str, Any]) -> str:
    """Use the job's algorithms, the first worker's `state`, and time nothing from now on.

    Returns a warning where they were chosen on another CPU, and empty text otherwise.
    """
    forget(model)
    tuned = [module for _, module in _tuned(model)]
    for module in tuned:
        module.agreed = True
    load(model, chosen)
    before, here = (on.partition(",")[0] for on in (chosen["on"], machine()))  # the CPU; not its threads
    if not tuned or before == here:
        return ""
    return (
        f"convolutions keep the algorithms that were chosen on {before}; this is {here}, where others may be faster: "
        "machine.fast_path=auto chooses again (and changes the numbers)"
    )


def _tuned(model: nn.Module) -> Iterator[tuple[str, TunedConv2d]]:
    return ((name, module) for name, module in model.named_modules() if isinstance(module, TunedConv2d))


@contextmanager
def _choosing(tuned: Sequence[TunedConv2d], advance: Callable[[int], None]) -> Iterator[None]:
    """Within this context, each convolution chooses its algorithms for the input that it sees."""

    def choose_for(module: TunedConv2d, args: tuple[torch.Tensor]) -> None:
        module.choose(args[0])
        advance(1)

    hooks = [module.register_forward_pre_hook(choose_for) for module in tuned]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
