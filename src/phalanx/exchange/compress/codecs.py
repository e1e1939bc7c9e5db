"""From a compression setting to its codec."""

import torch

from phalanx.errors import UserError
from phalanx.exchange.compress.cast import CastCodec, PlainCodec
from phalanx.exchange.compress.codec import Codec
from phalanx.exchange.compress.one_bit import OneBitCodec
from phalanx.exchange.compress.spec import CompressionSpec
from phalanx.exchange.compress.top_k import TopKCodec
from phalanx.exchange.compress.two_bit import TwoBitCodec


def make_codec(spec: CompressionSpec) -> Codec:
    """The codec of every compression that works on one worker's gradient alone, which powersgd does not."""
    match spec.kind:
        case "none":
            return PlainCodec()
        case "fp16":
            return CastCodec(torch.float16)
        case "bf16":
            return CastCodec(torch.bfloat16)
        case "2bit":
            return TwoBitCodec(spec.threshold, spec.rms_factor)
        case "1bit":
            return OneBitCodec()
        case "topk":
            assert spec.ratio is not None
            return TopKCodec(spec.ratio)
        case "powersgd":
            raise UserError(
                f"{spec} works with exchange.method=collective only",
                why="its matrices are multiplied and added over all workers at once, which a server cannot do for them",
                remedy="--compress 2bit or topk:0.01 with a parameter server, or --update-method collective",
            )
