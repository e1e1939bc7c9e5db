"""Calling native code with tensors: it gets addresses and sizes, and the number of threads that PyTorch has."""

import ctypes

import torch
from torch import Tensor

from phalanx.native.build import load_library

KINDS = {torch.float32: "f32", torch.bfloat16: "bf16"}  # how a function for such values ends


def address(tensor: Tensor | None) -> ctypes.c_void_p:
    return ctypes.c_void_p(None if tensor is None else tensor.data_ptr())


def call(library: str, function: str, *arguments: object) -> None:
    """The caller has seen that there is such a library. Its functions return 0, or -1 where there is no memory."""
    loaded = load_library(library)
    assert loaded is not None, "asked for only where there is one"
    if getattr(loaded, function)(*arguments, torch.get_num_threads()):
        raise MemoryError(f"no memory for {function}")
