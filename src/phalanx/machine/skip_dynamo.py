"""Skip the import of torch's compiler (torch._dynamo), which takes 1.8 s: as long as all the rest of torch.

Optimizers and DistributedDataParallel import torch._dynamo only to disable it for their methods, or to read its mode.
Phalanx never compiles them, so these functions mark the methods as disabled beforehand. Where a release of torch works
otherwise, the functions find nothing to mark, and the import happens.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel


def skip_dynamo() -> None:
    """Mark the optimizers' methods. Call it before the first optimizer is made."""
    for method in vars(torch.optim.Optimizer).values():
        if getattr(method, "__module__", None) == torch.optim.Optimizer.__module__:
            _mark_disabled(method)


@contextmanager
def ddp_without_dynamo() -> Iterator[None]:
    """Context for the constructor of DistributedDataParallel, which reads dynamo's mode: it gets the default."""
    _mark_disabled(vars(DistributedDataParallel).get("_inside_ddp_forward"))
    if "torch._dynamo" in sys.modules:
        yield
        return
    answer = SimpleNamespace(utils=SimpleNamespace(get_optimize_ddp_mode=lambda: "ddp_optimizer"))
    vars(torch)["_dynamo"] = answer
    try:
        yield
    finally:
        if vars(torch).get("_dynamo") is answer:  # otherwise it was imported after all
            del vars(torch)["_dynamo"]


def bare_step(optimizer: torch.optim.Optimizer) -> Callable[[], Any]:
    """The optimizer's step without its wrappers, for a caller that has disabled gradients."""
    step: Any = type(optimizer).step
    while hasattr(step, "__wrapped__"):
        step = step.__wrapped__
    return lambda: step(optimizer)


def _mark_disabled(method: Any) -> None:
    """Set the attribute in which torch's wrappers remember that they have disabled the compiler."""
    while (bare := getattr(method, "__wrapped__", None)) is not None:
        bare.__dict__.setdefault("__dynamo_disable", bare)
        method = bare
