"""Count what a model's layers cost, in the order in which they run, on the meta device.

Every operation is seen as it is dispatched. A gradient that becomes ready ends a segment of the backward pass; a
segment has the cost of the operations since the one before.
"""

import math
import warnings
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from phalanx.config.schema import ModelConfig
from phalanx.errors import UserError
from phalanx.models.build import build_model
from phalanx.plan.profile import Cost, ModelProfile, Segment

BATCHES = (2, 4)  # costs are a + b × images; two sizes give both. Batch norm needs two images at least
_FREE = {"detach", "view", "t", "expand", "empty", "as_strided", "transpose", "permute", "alias", "slice", "select"}
_FREE |= {"_unsafe_view", "unsqueeze", "squeeze", "unbind", "split", "new_empty", "empty_like", "_reshape_alias"}


class _Counter(TorchDispatchMode):
    """Adds up what operations cost."""

    def __init__(self) -> None:
        super().__init__()
        self.total = Cost()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        packet = func._overloadpacket
        if packet.__name__ in _FREE:
            return out
        moved = sum(_bytes(each) for each in _tensors((args, kwargs, out)))
        if packet in flop_registry:
            flops = _backward_flops(args) if packet.__name__ == "convolution_backward" else None
            if flops is None:
                flops = int(flop_registry[packet](*args, **(kwargs or {}), out_val=out))
            self.total += Cost(flops=flops, matrix_bytes=moved, operations=1)
        elif moved > 8:  # counters of batch norm are no work
            self.total += Cost(other_bytes=moved, operations=1)
        return out


def _backward_flops(args: Any) -> int | None:
    """Of a convolution's gradients. (torch's own count leaves out that groups are convolved by themselves.)"""
    output_gradient, _, weight, *_, transposed, _, _, wanted = args
    if transposed:
        return None
    forward = 2 * output_gradient.numel() * weight.numel() // weight.shape[0]
    return int(forward * sum(wanted[:2]))


def _tensors(tree: Any) -> Iterator[Tensor]:
    if isinstance(tree, Tensor):
        yield tree
    elif isinstance(tree, dict):
        yield from _tensors(list(tree.values()))
    elif isinstance(tree, list | tuple):
        for each in tree:
            yield from _tensors(each)


def _bytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def count_layers(config: ModelConfig, *, num_classes: int, channels: int, image_size: int) -> ModelProfile:
    """The profile of a configuration's model."""
    try:
        with torch.device("meta"), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # initializers warn about empty tensors
            plain = config.model_copy(update={"pretrained": False})
            model = build_model(plain, num_classes=num_classes, channels=channels, image_size=image_size)
        model.train()
        runs = [_run(model, batch, channels, image_size) for batch in BATCHES]
    except UserError:
        raise
    except Exception as error:  # a model that needs values, or an operation without a meta form
        raise UserError(
            f"the layers of {config.name} cannot be counted",
            why=f"it does not run on torch's meta device: {str(error).splitlines()[0]}",
            remedy="phalanx plan --measure times it on this machine instead",
        ) from error
    return _profile(model, runs)


def _run(model: nn.Module, batch: int, channels: int, image_size: int) -> tuple[Cost, list[tuple[str, Cost]], int]:
    """(forward, gradients in order with the cost since the one before, bytes that forward keeps for backward)."""
    counter, ready = _Counter(), list[tuple[str, Cost]]()
    kept: dict[int, tuple[Tensor, int]] = {}
    params = {id(param) for param in model.parameters()}

    def keep(tensor: Tensor) -> Tensor:
        if id(tensor) not in params and tensor._base is None:
            kept[id(tensor)] = (tensor, _bytes(tensor))
        return tensor

    named = [(name, param) for name, param in model.named_parameters() if param.requires_grad]
    hooks = [
        param.register_post_accumulate_grad_hook(lambda _, name=name: ready.append((name, counter.total)))
        for name, param in named
    ]
    try:
        images = torch.empty(batch, channels, image_size, image_size, device="meta")
        with counter:
            with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
                output = model(images)
            forward = counter.total
            output.sum().backward()
    finally:
        for hook in hooks:
            hook.remove()
        model.zero_grad(set_to_none=True)
    segments, before = [], forward
    for name, total in ready:
        segments.append((name, total - before))
        before = total
    return forward, segments, sum(size for _, size in kept.values())


def _profile(model: nn.Module, runs: list[tuple[Cost, list[tuple[str, Cost]], int]]) -> ModelProfile:
    (small, small_segments, small_kept), (large, large_segments, large_kept) = runs
    params = {name: param for name, param in model.named_parameters() if param.requires_grad}
    places = {name: place for place, name in enumerate(params)}
    step = BATCHES[1] - BATCHES[0]
    segments = [
        Segment(places[name], *_linear(few, many))
        for (name, few), (_, many) in zip(small_segments, large_segments, strict=True)
    ]
    return ModelProfile(
        sizes=tuple(param.numel() for param in params.values()),
        rows=tuple(param.shape[0] if param.dim() > 1 else max(1, param.numel()) for param in params.values()),
        forward=_linear(small, large),
        backward=tuple(segments),
        kept_bytes=math.ceil((large_kept - small_kept) / step),
        frozen=sum(param.numel() for param in model.parameters()) - sum(param.numel() for param in params.values()),
    )


def _linear(few: Cost, many: Cost) -> tuple[Cost, Cost]:
    """(cost of an image, cost of a step) from those of two batches."""
    image = (many - few) * (1 / (BATCHES[1] - BATCHES[0]))
    return image, few - image * BATCHES[0]
