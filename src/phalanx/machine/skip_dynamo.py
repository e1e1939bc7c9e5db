"""torch without its compiler, whose import takes as long as all the rest of torch: 1.8 s of every process's start.

Optimizers and DistributedDataParallel import torch._dynamo only to tell it to keep out, or to ask it what it does with
them if it does anything. Nobody compiles them here, so they are told that this has been done. Where a release of torch
does this otherwise, nothing is found to change, and the import happens.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel


def skip_dynamo() -> None:
    """Before the first optimizer is made."""
    for method in vars(torch.optim.Optimizer).values():
        if getattr(method, "__module__", None) == torch.optim.Optimizer.__module__:
            _keep_out(method)


@contextmanager
def ddp_without_dynamo() -> Iterator[None]:
    """Around the making of a DistributedDataParallel, which asks how its exchange is compiled: in the default way."""
    _keep_out(vars(DistributedDataParallel).get("_inside_ddp_forward"))
    if "torch._dynamo" in sys.modules:
        yield
        return
    answer = SimpleNamespace(utils=SimpleNamespace(get_optimize_ddp_mode=lambda: "ddp_optimizer"))
    vars(torch)["_dynamo"] = answer
    try:
        yield
    finally:
        if vars(torch).get("_dynamo") is answer:  # otherwise somebody did import it
            del vars(torch)["_dynamo"]


def bare_step(optimizer: torch.optim.Optimizer) -> Callable[[], Any]:
    """The optimizer's step as it was written, for a caller who has gradients turned off."""
    step: Any = type(optimizer).step
    while hasattr(step, "__wrapped__"):
        step = step.__wrapped__
    return lambda: step(optimizer)


def _keep_out(method: Any) -> None:
    """Wrappers of torch's that would tell the compiler to keep out of this keep the answer in an attribute: set it."""
    while (bare := getattr(method, "__wrapped__", None)) is not None:
        bare.__dict__.setdefault("__dynamo_disable", bare)
        method = bare
