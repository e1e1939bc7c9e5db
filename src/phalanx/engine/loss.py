"""The loss: cross-entropy with label smoothing or the user's own, over plain or mixed targets; top-1/top-k counts."""

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
from phalanx.errors import UserError

Loss = Callable[[Tensor, Tensor], Tensor]  # logits in float32, labels → the mean of a micro-batch
PLAIN: Loss = F.cross_entropy  # what evaluation reports


def make_loss(config: LossConfig, weights: Tensor | None = None) -> Loss:
    """The loss that training minimises, with a weight for each class. Evaluation reports plain cross-entropy."""
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


def loss_notes(config: LossConfig) -> list[str]:
    """What the user's loss does not take."""
    return not_taken(config.name, _offered(config, None)) if is_reference(config.name) else []


def _own_loss(function: Loss, name: str, logits: Tensor, labels: Tensor) -> Tensor:
    """The user's loss, which may be one number or one for each sample."""
    value = function(logits, labels)
    if isinstance(value, Tensor) and value.ndim == 0:
        loss = value
    elif isinstance(value, Tensor) and value.shape == labels.shape:
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
