"""Memory that messages arrive in, used again once nobody has a view of it any more.

Fresh memory costs a page fault every four kilobytes, and is in no cache.
"""

import sys
from typing import Any

import numpy as np

from phalanx.net.lane_cipher import empty_bytes

_LARGE_BYTES = 64 << 10  # below that the allocator does the same
_ROUND_BYTES = 1 << 20  # so that one buffer serves parts of about the same size
_MOST_IDLE_BYTES = 64 << 20
_IDLE = 2  # references to a buffer that is only kept: of the list, and of the call that counts them


class ReceiveBuffers:
    """The buffers of one lane; only its loop's thread takes them. A view of one, in any thread, keeps it in use."""

    def __init__(self) -> None:
        self._kept: list[np.ndarray[Any, np.dtype[np.uint8]]] = []

    def take(self, size: int) -> memoryview:
        if size < _LARGE_BYTES:
            return empty_bytes(size)
        for number in range(len(self._kept)):
            if len(self._kept[number]) >= size and self._is_idle(number):
                return self._kept[number].data[:size]
        self._drop_idle()
        self._kept.append(np.empty(-(-size // _ROUND_BYTES) * _ROUND_BYTES, dtype=np.uint8))
        return self._kept[-1].data[:size]

    def _is_idle(self, number: int) -> bool:
        return sys.getrefcount(self._kept[number]) == _IDLE

    def _drop_idle(self) -> None:
        """Drop those that are too small, beyond what may be kept for later."""
        idle_bytes = 0
        for number in reversed(range(len(self._kept))):
            if self._is_idle(number):
                idle_bytes += len(self._kept[number])
                if idle_bytes > _MOST_IDLE_BYTES:
                    del self._kept[number]
