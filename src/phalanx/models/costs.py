"""Count what a model costs: parameters, and multiply-adds per image.

Models are built on torch's meta device, so large ones need no memory. Each takes a fraction of a second.
"""

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from phalanx.config.schema import ModelConfig
from phalanx.errors import UserError
from phalanx.models import cifar, zoo
from phalanx.models.build import build_model, is_ours
from phalanx.models.classic import CLASSICS
from phalanx.models.index import UNKNOWN, ModelCost


def count_cost(name: str, image_size: int | None = None) -> ModelCost:
    """The cost of a model at an image size; by default the size that it was designed for."""
    config, channels = ModelConfig(name=name), 3
    name = config.name  # ours, if another system's name was given
    if is_ours(name):
        classic = CLASSICS.get(name)
        designed, classes = (classic.image_size, classic.num_classes) if classic else (cifar.IMAGE_SIZE, 10)
        channels = classic.channels if classic else 3
        size = (image_size or designed,) * 2
        try:
            with torch.device("meta"):
                model = build_model(config, num_classes=classes, channels=channels, image_size=size[0])
        except UserError:
            if classic is None:
                raise
            return UNKNOWN  # the images are too small for it
    else:
        zoo.require_known(name)
        size = (image_size, image_size) if image_size else zoo.own_input_size(name)
        try:
            sized = image_size is not None and "img_size" in zoo.constructor_names(name)
            model = zoo.build_outline(name, {"img_size": image_size} if sized else {})
        except Exception:  # a model that timm cannot build must not end the listing
            return UNKNOWN
    return ModelCost(sum(p.numel() for p in model.parameters()), _macs(model, size, channels), max(size))


def _macs(model: nn.Module, size: tuple[int, int], channels: int) -> int | None:
    """Multiply-adds per image, as publications count them: convolutions and matrix products."""
    # the counter's hooks fail on parameters that require gradients
    model.eval().requires_grad_(False)
    try:
        with FlopCounterMode(display=False) as counter:
            model(torch.empty(1, channels, *size, device="meta"))
    except Exception:  # a model that depends on values, or cannot take the size
        return None
    return int(counter.get_total_flops()) // 2
