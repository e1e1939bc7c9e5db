"""Bytes on the wire of each compression, by number of values. Without torch, so that `phalanx plan` can use them."""

import math

from phalanx.exchange.compress.spec import CompressionSpec

TWO_BIT_HEADER = 4  # bytes of the threshold
ONE_BIT_HEADER = 8  # bytes of the two means


def plain_bytes(numel: int) -> int:
    return 4 * numel


def half_bytes(numel: int) -> int:
    return 2 * numel


def two_bit_bytes(numel: int) -> int:
    """Four codes a byte, padded to a multiple of four bytes."""
    return TWO_BIT_HEADER + 4 * math.ceil(numel / 16)


def one_bit_bytes(numel: int) -> int:
    """Eight signs a byte, padded to a multiple of four bytes."""
    return ONE_BIT_HEADER + 4 * math.ceil(numel / 32)


def top_k_count(ratio: float, numel: int) -> int:
    """How many of `numel` values are sent."""
    return min(numel, max(1, round(ratio * numel)))


def top_k_bytes(ratio: float, numel: int) -> int:
    """An index and a value for each."""
    return 8 * top_k_count(ratio, numel)


def power_sgd_values(rank: int, rows: int, numel: int) -> int:
    """Values of the two matrices that stand for a gradient; all of its own where that saves less than half.

    The rule is torch's, which never compresses a vector (`rows` is all of it).
    """
    factors = (rows + numel // rows) * rank
    return factors if 2 * factors < numel else numel


def wire_bytes(spec: CompressionSpec, numel: int, rows: int = 1) -> int:
    """The size of a compressed gradient of `numel` values, whose first dimension is `rows` long."""
    match spec.kind:
        case "none":
            return plain_bytes(numel)
        case "fp16" | "bf16":
            return half_bytes(numel)
        case "2bit":
            return two_bit_bytes(numel)
        case "1bit":
            return one_bit_bytes(numel)
        case "topk":
            assert spec.ratio is not None
            return top_k_bytes(spec.ratio, numel)
        case "powersgd":
            assert spec.rank is not None
            return 4 * power_sgd_values(spec.rank, rows, numel)
