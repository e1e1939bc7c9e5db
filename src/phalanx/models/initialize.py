"""Initializers of convolution and linear weights (`model.initializer`)."""

from collections.abc import Callable

from torch import Tensor, nn

Fill = Callable[[Tensor], object]

# initializer: (fills a convolution's weight, fills a linear layer's weight)
INITIALIZERS: dict[str, tuple[Fill, Fill]] = {
    "kaiming": (
        lambda weight: nn.init.kaiming_normal_(weight, mode="fan_out", nonlinearity="relu"),
        lambda weight: nn.init.normal_(weight, std=0.01),
    ),
    "xavier": (nn.init.xavier_uniform_, nn.init.xavier_uniform_),
    "orthogonal": (nn.init.orthogonal_, nn.init.orthogonal_),
    "truncated-normal": (
        lambda weight: nn.init.trunc_normal_(weight, std=0.02, a=-0.04, b=0.04),
        lambda weight: nn.init.trunc_normal_(weight, std=0.02, a=-0.04, b=0.04),
    ),
}


def initialize(model: nn.Module, initializer: str) -> None:
    """Initialize every convolution and linear weight; `default` leaves the model as it is."""
    if initializer == "default":
        return
    fill_convolution, fill_linear = INITIALIZERS[initializer]
    for module in model.modules():
        if isinstance(module, nn.Conv1d | nn.Conv2d | nn.Conv3d):
            fill_convolution(module.weight)
        elif isinstance(module, nn.Linear):
            fill_linear(module.weight)


def undo_zero_init(model: nn.Module) -> None:
    """Set every batch- or group-norm gamma that starts at 0 to the usual 1.

    timm's ResNets, RegNets and similar models start the last norm of each residual block at 0. Their constructors have
    an argument for it, but some of timm's entry points set that argument themselves, and fail if it is given again.
    """
    for module in model.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm | nn.GroupNorm):
            gamma = module.weight
            if gamma is not None and not gamma.any():
                nn.init.ones_(gamma)
