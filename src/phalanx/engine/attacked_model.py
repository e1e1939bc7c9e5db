"""A model while it is attacked: nothing of it changes, whatever passes through it."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn


@contextmanager
def attacked(model: nn.Module, batch_norm: str) -> Iterator[None]:
    """Within this context the model's parameters have no gradients, dropout is off, and statistics stay.

    `batch_norm` is train (statistics of the batch) or eval (the running ones). Since no parameter has a gradient, no
    hook of an update method is called, and no time is spent on gradients of weights.
    """
    learned = [param for param in model.parameters() if param.requires_grad]
    modes = [(module, module.training) for module in model.modules()]
    norms = [module for module, _ in modes if isinstance(getattr(module, "running_mean", None), torch.Tensor)]
    kept = [(buffer, buffer.clone()) for norm in norms for buffer in norm.buffers(recurse=False)]
    for param in learned:
        param.requires_grad_(False)
    for module, _ in modes:
        module.training = False
    if batch_norm == "train":
        for norm in norms:
            norm.train()  # one that is frozen stays in eval mode
    try:
        yield
    finally:
        with torch.no_grad():
            for buffer, before in kept if batch_norm == "train" else []:
                buffer.copy_(before)
        for module, training in modes:
            module.training = training
        for param in learned:
            param.requires_grad_(True)
