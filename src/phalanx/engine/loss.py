"""The loss: cross-entropy, BCE or the user's own, over plain or mixed targets; counts of correct predictions."""

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from phalanx.config.schema import LossConfig
from phalanx.custom import is_reference, load, user_code
from phalanx.custom.call import arguments, not_taken
from phalanx.data.augment.mixing import Targets
from phalanx.engine.bce import bce
from phalanx.errors import UserError

Loss = Callable[[Tensor, Tensor], Tensor]  # logits in float32, labels → the mean of a micro-batch


def plain_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """What evaluation reports, whatever training minimises: cross-entropy, or BCE of several labels."""
    return F.cross_entropy(logits, labels) if labels.ndim == 1 else bce(None, 0.0, logits, labels)


def is_bce(config: LossConfig, *, multi_label: bool) -> bool:
    """Whether the loss is BCE, by its name or because samples may have several labels."""
    return config.name == "bce" or (config.name == "auto" and multi_label)


def make_loss(config: LossConfig, weights: Tensor | None = None, *, multi_label: bool = False) -> Loss:
    """The loss that training minimises, with a weight for each class."""
    if is_bce(config, multi_label=multi_label):
        return partial(bce, weights, config.label_smoothing)
    if not is_reference(config.name) and weights is not None:
        return partial(_weighted, weights, config.label_smoothing)
    if not is_reference(config.name):
        return partial(F.cross_entropy, label_smoothing=config.label_smoothing)
    own: Any = load(config.name)
    with user_code():
        given = arguments(own, config.name, "loss.options", _offered(config, weights), config.options)
        function: Any = own(**given) if inspect.isclass(own) else partial(own, **given)
    if isinstance(function, nn.Module) and any(True for _ in function.parameters()):
        raise UserError(
            f"{config.name} has parameters of its own",
            why="the optimizer updates those of the model alone, so they would never change",
            remedy="make them part of the model",
        )
    return partial(_own_loss, function, config.name)


def _weighted(weights: Tensor, label_smoothing: float, logits: Tensor, labels: Tensor) -> Tensor:
    """The mean over samples, not over weights: so it does not depend on which samples share a micro-batch."""
    total = F.cross_entropy(logits, labels, weights, label_smoothing=label_smoothing, reduction="sum")
    return total / max(1, len(labels))


def _offered(config: LossConfig, weights: Tensor | None) -> dict[str, Any]:
    return {
        **({"label_smoothing": config.label_smoothing} if config.label_smoothing else {}),
        **({"class_weights": weights} if config.class_weights is not None else {}),
    }


def loss_notes(config: LossConfig, *, multi_label: bool = False) -> list[str]:
    """What is minimised where samples may have several labels; what the user's loss does not take."""
    own = not_taken(config.name, _offered(config, None)) if is_reference(config.name) else []
    name = config.name if is_reference(config.name) else "binary cross-entropy (BCE)"
    return [f"several labels a sample: the loss is {name}, and mAP judges the run", *own] if multi_label else own


def _own_loss(function: Loss, name: str, logits: Tensor, labels: Tensor) -> Tensor:
    """The user's loss, which may be one number or one for each sample. Several labels are floats, as torch's BCE's."""
    value = function(logits, labels if labels.ndim == 1 else labels.float())
    if isinstance(value, Tensor) and value.ndim == 0:
        loss = value
    elif isinstance(value, Tensor) and value.shape in (labels.shape, labels.shape[:1]):
        loss = value.mean()
    else:
        found = f"a tensor of {list(value.shape)}" if isinstance(value, Tensor) else f"a {type(value).__name__}"
        raise UserError(
            f"{name} returned {found}",
            why=f"a loss of {len(labels)} samples is one number, or one for each: [] or [{len(labels)}]",
            remedy="return value.mean()",
        )
    if torch.is_grad_enabled() and logits.requires_grad and not loss.requires_grad:
        raise UserError(
            f"{name} returned a loss without a gradient",
            why="it does not depend on the logits, or was computed without autograd",
            remedy="use operations of torch on the logits, without .detach(), .item() or numpy",
        )
    return loss


def training_loss(logits: Tensor, targets: Targets, loss: Loss) -> Tensor:
    """Mean loss of a micro-batch, in float32 whatever the model's precision. Mixed targets count by their share."""
    logits = logits.float()
    value = loss(logits, targets.labels)
    if targets.other_labels is None:
        return value
    return targets.lam * value + (1 - targets.lam) * loss(logits, targets.other_labels)


@torch.no_grad()
def correct(logits: Tensor, labels: Tensor, k: int) -> Tensor:
    """How many labels are the first answer, and how many among the first k: a tensor of two counts."""
    top = logits.topk(min(k, logits.shape[1]), dim=1).indices
    hits = top == labels[:, None]
    return torch.stack([hits[:, 0].sum(), hits.sum()])


@torch.no_grad()
def counted(logits: Tensor, labels: Tensor, k: int) -> Tensor:
    """The counts of `Totals`: correct predictions, or right and marked labels where a sample may have several."""
    nothing = torch.zeros(2, dtype=torch.int64, device=logits.device)
    if labels.ndim == 1:
        return torch.cat([correct(logits, labels, k), nothing])
    predicted = logits > 0  # a probability above 1/2
    hits = (predicted & (labels > 0)).sum()
    return torch.cat([nothing, torch.stack([hits, predicted.sum() + labels.sum()])])
