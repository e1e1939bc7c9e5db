"""muon-sgd: orthogonalised updates for convolutions, plain SGD for all other parameters.

Jordan et al. 2024, "Muon": the momentum of a convolution weight is taken as a matrix (filters × inputs) and replaced by
the nearest matrix with equal singular values, so that every direction learns and not only the strongest. The norm of a
weight before a batch norm has no effect, so it is kept constant, and the rate is relative to it. timm's `muon` iterates
in bf16, which only some processors compute quickly, and has no SGD for parameters that are no matrix.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

# x ← a·x + b·x³ + c·x⁵ moves any singular value in (0, 1] to about 1 in few iterations (published coefficients).
QUINTIC = (3.4445, -4.7750, 2.0315)


class MuonSGD(torch.optim.Optimizer):
    """`lr` and `momentum` are for convolutions. Other parameters have `rest_lr` times the rate, and `weight_decay`.

    `turns` counts the iterations that orthogonalise.
    """

    def __init__(
        self,
        params: Any,
        lr: float,
        *,
        momentum: float = 0.6,
        nesterov: bool = True,
        weight_decay: float = 0.0,
        turns: int = 3,
        rest_lr: float = 1.0,
        rest_momentum: float = 0.9,
    ) -> None:
        if turns < 1 or rest_lr <= 0 or not 0 <= rest_momentum < 1:
            raise ValueError(f"turns={turns} and rest_lr={rest_lr} are above 0, rest_momentum={rest_momentum} below 1")
        defaults = {
            **{"lr": lr, "momentum": momentum, "nesterov": nesterov, "weight_decay": weight_decay},
            **{"turns": turns, "rest_lr": rest_lr, "rest_momentum": rest_momentum},
        }
        super().__init__(params, defaults)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        assert closure is None, "gradients are computed before"
        for group in self.param_groups:
            for param in group["params"]:
                if param.grad is not None:
                    self._step_of(param, param.grad, group)

    def _step_of(self, param: Tensor, grad: Tensor, group: dict[str, Any]) -> None:
        convolution = param.dim() == 4
        momentum = group["momentum"] if convolution else group["rest_momentum"]
        if not convolution:
            grad = grad.add(param, alpha=group["weight_decay"])
        state = self.state[param]
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = torch.zeros_like(param)
        velocity = state["momentum_buffer"].mul_(momentum).add_(grad)
        direction = grad.add(velocity, alpha=momentum) if group["nesterov"] else velocity
        if not convolution:
            param.add_(direction, alpha=-group["lr"] * group["rest_lr"])
            return
        param.mul_(len(param) ** 0.5 / param.norm().clamp(min=1e-12))
        turned = orthogonal(direction.reshape(len(param), -1), group["turns"])
        param.add_(turned.reshape(param.shape), alpha=-group["lr"])


def orthogonal(matrix: Tensor, turns: int) -> Tensor:
    """Approximately the nearest matrix whose singular values are all equal."""
    tall = matrix.shape[0] > matrix.shape[1]
    x: Tensor = matrix.mT if tall else matrix
    x = x / x.norm().clamp(min=1e-12)
    a, b, c = QUINTIC
    for _ in range(turns):
        square = x @ x.mT
        x = a * x + (b * square + c * square @ square) @ x
    return x.mT if tall else x
