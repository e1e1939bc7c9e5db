"""Calls native code with tensors: passes addresses, sizes, and PyTorch's number of threads."""

import ctypes

import torch
from torch import Tensor

from phalanx.native.build import load_library
from phalanx.scopes import scope

KINDS = {torch.float32: "f32", torch.bfloat16: "bf16"}  # suffix of the functions for each dtype


def address(tensor: Tensor | None) -> ctypes.c_void_p:
    return ctypes.c_void_p(None if tensor is None else tensor.data_ptr())


def call(library: str, function: str, *arguments: object) -> None:
    """Call a function of a library that is known to be there. It returns 0, or -1 if there is not enough memory."""
    loaded = load_library(library)
    assert loaded is not None, "callers check first that the library is there"
    with scope(function):
        failed = getattr(loaded, function)(*arguments, torch.get_num_threads())
    if failed:
        raise MemoryError(f"no memory for {function}")
