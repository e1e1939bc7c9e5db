"""torch's optimizers without its compiler: each of them imports torch._dynamo, 1.8 s of every process's start.

Their methods are wrapped to tell the compiler to keep out, and import it to say so. Nobody compiles an optimizer here,
so the wrappers are told that this has been done (they keep their answer in an attribute), and `step` is called without
its own. Where a release of torch does this otherwise, nothing is found to change, and the import happens.
"""

from collections.abc import Callable
from typing import Any

import torch


def spare_compiler() -> None:
    """Before the first optimizer is made."""
    for method in vars(torch.optim.Optimizer).values():
        bare = getattr(method, "__wrapped__", None)
        if bare is not None and getattr(method, "__module__", None) == torch.optim.Optimizer.__module__:
            bare.__dict__.setdefault("__dynamo_disable", bare)


def bare_step(optimizer: torch.optim.Optimizer) -> Callable[[], Any]:
    """The optimizer's step as it was written, for a caller who has gradients turned off."""
    step: Any = type(optimizer).step
    while hasattr(step, "__wrapped__"):
        step = step.__wrapped__
    return lambda: step(optimizer)
