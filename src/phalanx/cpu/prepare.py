"""Have a model's layers compute by the fastest algorithms of this CPU. What is saved and exported does not change."""

from torch import nn

from phalanx.config.schema import FastPath
from phalanx.cpu.convolution import tune_convolutions
from phalanx.cpu.fusion import fuse_norms


def prepare(model: nn.Module, fast_path: FastPath, *, to_train: bool) -> None:
    """Have layers take the fast path. What is saved and exported does not change."""
    if fast_path == "off":
        return
    tune_convolutions(model, native=fast_path == "native")
    if to_train and fast_path == "native":
        fuse_norms(model)
