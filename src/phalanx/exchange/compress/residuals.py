"""What compression has held back of each parameter's gradients, by name, so that a checkpoint can keep it."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from phalanx.data.order import Share
from phalanx.errors import UserError


class Residuals:
    """One residual a parameter, zero until something was held back.

    A residual has its parameter's shape and memory layout, so that its flat view lines up with the gradient in a DDP
    bucket, while a checkpoint may go from one layout (such as channels_last) to another.
    """

    def __init__(self, names: Mapping[nn.Parameter, str]) -> None:
        self._names = names
        self._residuals: dict[str, Tensor] = {}

    def name(self, param: Tensor) -> str:
        assert isinstance(param, nn.Parameter)
        return self._names[param]

    def flat(self, param: Tensor) -> Tensor:
        """The residual of a parameter as one row, in memory order; not a copy."""
        name = self.name(param)
        if name not in self._residuals:
            self._residuals[name] = torch.zeros_like(param, requires_grad=False)
        return self._residuals[name].as_strided((param.numel(),), (1,))

    def take(self, param: Tensor) -> Tensor:
        """Take the residual of a parameter out, as one row."""
        row = self.flat(param)
        del self._residuals[self.name(param)]
        return row

    def tensors(self) -> dict[str, Tensor]:
        return dict(self._residuals)

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Continue with what `tensors` returned. A missing name starts from zero."""
        params = {name: param for param, name in self._names.items()}
        self._residuals.clear()
        for name, tensor in tensors.items():
            if name not in params or params[name].shape != tensor.shape:
                raise UserError(
                    f"the checkpoint holds a compression residual {name!r} of shape {tuple(tensor.shape)}",
                    why="this model has no such parameter",
                    remedy="resume with the model that wrote the checkpoint",
                )
            self._residuals[name] = torch.zeros_like(params[name], requires_grad=False).copy_(tensor)


def residuals_of(saved: Mapping[str, Tensor], share: Share) -> dict[str, Tensor]:
    """This worker's part of the residuals of all workers, saved as `RANK/parameter`.

    On another number of workers rank 0 takes the sum: what matters is the sum over all ranks.
    """
    ranks = {int(key.split("/", 1)[0]) for key in saved}
    mine: dict[str, Tensor] = {}
    for key, tensor in saved.items():
        rank, name = key.split("/", 1)
        if len(ranks) == share.world and int(rank) == share.rank:
            mine[name] = tensor
        elif len(ranks) != share.world and share.rank == 0:
            mine[name] = mine[name] + tensor if name in mine else tensor
    return mine
