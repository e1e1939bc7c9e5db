"""Parameters that workers pull in 16 bits. The servers' own stay float32, so that rounding never adds up."""

import torch
from torch import Tensor

from phalanx.errors import UserError

HALF_TYPES = {"none": None, "fp16": torch.float16, "bf16": torch.bfloat16}


def to_half(values: Tensor, kind: str) -> Tensor:
    """The values in 16 bits. Raises for a value that the type cannot hold; NaN and infinity stay what they are."""
    dtype = HALF_TYPES[kind]
    if dtype is None:
        return values
    short = values.to(dtype)
    if dtype is torch.float16 and not torch.equal(short.isfinite(), values.isfinite()):
        raise UserError(
            f"a parameter of {float(values.nan_to_num(0, 0, 0).abs().max()):.6g} does not fit into fp16",
            why=f"the largest fp16 value is {torch.finfo(dtype).max:g}; sent as infinity it would spoil the weights",
            remedy="exchange.compress_pull=bf16 has the range of float32",
        )
    return short
