"""Tensors on `cuda:0` without data, and what waits for the GPU. For a process that has `stub.c` preloaded."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

GPU = torch.device("cuda", 0)
_READS = (torch.ops.aten._local_scalar_dense.default, torch.ops.aten.item.default)
_VIEWS = (torch.ops.aten.unbind.int, torch.ops.aten.select.int, torch.ops.aten.detach.default)
_BACKWARD = torch.ops.aten.convolution_backward.default
_COPIES = (torch.ops.aten._to_copy.default, torch.ops.aten.copy_.default)


class Waits(TorchDispatchMode):
    """Notes each time the host waits for the GPU, and answers with numbers, which fake tensors do not have."""

    def __init__(self, finite: bool = True) -> None:
        super().__init__()
        self.log: list[str] = []
        self._finite = finite

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in _READS:
            if args[0].device.type == "cuda" and self.log[-1:] != ["read"]:  # the numbers of one tensor come together
                self.log.append("read")
            if args[0].dtype == torch.bool:
                return self._finite
            return 1.0 if args[0].is_floating_point() else 1
        if "_fused_" in str(func):  # optimizers have no fake kernel: they need all tensors in one place, side by side
            _refuse_misfits([list(each) for each in args if isinstance(each, list | tuple) and each])
            return None
        out = func(*args, **kwargs)
        if func in _COPIES and isinstance(out, Tensor):
            devices = {out.device.type, args[-1 if func is _COPIES[1] else 0].device.type}
            if devices == {"cpu", "cuda"} and not kwargs.get("non_blocking"):
                self.log.append("copy")
        elif func not in _VIEWS and func.namespace != "prim":
            self.log.append("backward" if func is _BACKWARD else "work")
        return out

    @property
    def count(self) -> int:
        return sum(each in ("read", "copy") for each in self.log)


def _refuse_misfits(lists: list[list[Tensor]]) -> None:
    for row in zip(*lists, strict=True):
        if {each.device for each in row} != {GPU}:
            raise RuntimeError(f"fused update: tensors on {[str(each.device) for each in row]}")
        like = [each for each in row if each.ndim]
        if len({(each.dtype, each.stride()) for each in like}) != 1:
            raise RuntimeError(f"fused update: {[(each.dtype, each.stride()) for each in like]}")


@contextmanager
def fake_gpu(finite: bool = True) -> Iterator[Waits]:
    """New tensors have no data; those that are there come in as if copied."""
    with FakeTensorMode(allow_non_fake_inputs=True), Waits(finite) as waits:
        yield waits


def on_gpu(model: nn.Module) -> nn.Module:
    """What `model.to("cuda:0")` does, where tensors have no data. In place."""
    for module in model.modules():
        held: list[dict[str, Any]] = [module._parameters, module._buffers]
        for named in held:
            for name, tensor in named.items():
                if tensor is not None:
                    there = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=GPU)
                    named[name] = (
                        nn.Parameter(there, tensor.requires_grad) if isinstance(tensor, nn.Parameter) else there
                    )
    return model
