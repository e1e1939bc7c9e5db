"""Random numbers as a pure function of their use, so that no number of workers, thread or restart changes them.

A draw is addressed by (seed, stream, epoch, index, number): a counter-based generator, with no state to save.
"""

import functools
import zlib

import numpy as np
import numpy.typing as npt

U64 = npt.NDArray[np.uint64]
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def _mix(x: U64) -> U64:
    """The finalizer of SplitMix64: every input bit reaches every output bit."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@functools.lru_cache(maxsize=1024)
def key(seed: int, stream: str, epoch: int) -> np.uint64:
    """One 64-bit key for a use (`stream`) of randomness in an epoch."""
    words = np.array([seed, zlib.crc32(stream.encode()), epoch], dtype=np.uint64)
    state = np.zeros(1, dtype=np.uint64)
    with np.errstate(over="ignore"):
        for word in words:
            state = _mix(state + _GOLDEN + word)
    return np.uint64(state[0])


def bits(seed: int, stream: str, epoch: int, indices: npt.NDArray[np.int64], count: int = 1) -> U64:
    """`count` 64-bit draws for each index, shape (len(indices), count)."""
    base = key(seed, stream, epoch)
    with np.errstate(over="ignore"):
        rows = _mix(indices.astype(np.uint64) * _GOLDEN + base)
        columns = np.arange(1, count + 1, dtype=np.uint64) * _GOLDEN
        return _mix(rows[:, None] + columns[None, :])


def uniform(
    seed: int, stream: str, epoch: int, indices: npt.NDArray[np.int64], count: int = 1
) -> npt.NDArray[np.float64]:
    """`count` draws in [0, 1) for each index, shape (len(indices), count)."""
    return (bits(seed, stream, epoch, indices, count) >> np.uint64(11)).astype(np.float64) * 2.0**-53
