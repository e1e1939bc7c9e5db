"""The compression setting: none, fp16, bf16, 2bit, 2bit:T, 2bit:rms:F, 1bit, topk:R or powersgd:R."""

import math
from dataclasses import dataclass
from typing import Literal, get_args

from phalanx.errors import UserError, nearest

CodecName = Literal["none", "fp16", "bf16", "2bit", "1bit", "topk", "powersgd"]
KINDS: tuple[CodecName, ...] = get_args(CodecName)
EXAMPLES = "none, fp16, bf16, 2bit, 2bit:0.001, 2bit:rms:2, 1bit, topk:0.01, powersgd:4"

# MXNet's default of 0.5 is for gradients summed over a batch. Ours are means, hundreds of times smaller and different
# in each layer, so that with a fixed number most layers would send nothing: by default the threshold follows the RMS.
DEFAULT_RMS_FACTOR = 2.0
THRESHOLDS = 1e-30, 1e30  # it travels as float32, which ends not far beyond


@dataclass(frozen=True)
class CompressionSpec:
    """A compression with its one number, whichever its kind has. As text it is what the user may write."""

    kind: CodecName = "none"
    threshold: float | None = None  # 2bit: absolute
    rms_factor: float | None = None  # 2bit: times the root mean square of the gradient at hand
    ratio: float | None = None  # topk: share of the values that is sent
    rank: int | None = None  # powersgd: of the matrices that stand for the gradient

    def __str__(self) -> str:
        if self.rms_factor is not None:
            return f"{self.kind}:rms:{self.rms_factor}"
        numbers = [str(number) for number in (self.threshold, self.ratio, self.rank) if number is not None]
        return ":".join([self.kind, *numbers])


def parse_compression(text: str) -> CompressionSpec:
    """What `--compress TEXT` means; anything that cannot work is refused here, before a run starts."""
    name, _, value = text.strip().lower().partition(":")
    kind = next((known for known in KINDS if known == name), None)
    if kind is None:
        raise UserError(f"compression {text!r} is not known", why=nearest(name, KINDS), remedy=f"one of {EXAMPLES}")
    if kind == "2bit":
        return _two_bit(text, value)
    if kind == "topk":
        ratio = _number(text, value, "the share of values to send, above 0 and at most 1", "topk:0.01")
        if not 0 < ratio <= 1:
            raise UserError(
                f"compression {text!r}: the share of values to send must be above 0 and at most 1",
                why=f"{ratio:g} of them cannot be sent",
                remedy="topk:0.01 sends one value in a hundred",
            )
        return CompressionSpec(kind, ratio=ratio)
    if kind == "powersgd":
        rank = _number(text, value, "a rank, a whole number from 1 on", "powersgd:4")
        if rank < 1 or rank != int(rank):
            raise UserError(
                f"compression {text!r}: the rank must be a whole number from 1 on",
                why="it is the number of columns of the two matrices that stand for a gradient",
                remedy="powersgd:4; higher is more exact and more bytes",
            )
        return CompressionSpec(kind, rank=int(rank))
    if ":" in text:
        raise UserError(f"compression {text!r}: {kind} takes no number", remedy=f"write {kind}")
    return CompressionSpec(kind)


def _two_bit(text: str, value: str) -> CompressionSpec:
    if not value and ":" not in text:
        return CompressionSpec("2bit", rms_factor=DEFAULT_RMS_FACTOR)
    relative = value.startswith("rms:")
    number = _number(text, value.removeprefix("rms:"), "a threshold above 0", "2bit:0.001 or 2bit:rms:2")
    if not number > 0:
        raise UserError(
            f"compression {text!r}: the threshold must be above 0",
            why="a gradient is sent as -threshold, 0 or +threshold; with nothing to send, nothing would be learned",
            remedy="2bit:0.001 is absolute, 2bit:rms:2 is twice the gradient's root mean square",
        )
    if not THRESHOLDS[0] <= number <= THRESHOLDS[1]:
        raise UserError(
            f"compression {text!r}: the threshold must be between {THRESHOLDS[0]:g} and {THRESHOLDS[1]:g}",
            why="no gradient is of such a size, and float32 would make 0 or infinity of it",
            remedy="2bit chooses the threshold by itself",
        )
    return CompressionSpec("2bit", rms_factor=number) if relative else CompressionSpec("2bit", threshold=number)


def _number(text: str, value: str, meaning: str, example: str) -> float:
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise UserError(
            f"compression {text!r} needs {meaning}",
            why=f"{value!r} is not a number" if value else "there is no number after the name",
            remedy=f"such as {example}",
        )
    return number
