"""Memory of parts that arrive: used again, but never while anybody can see what is in it."""

import numpy as np
import torch

from phalanx.net.receive_buffers import ReceiveBuffers

SIZE = 3 << 20


def _address(place: memoryview) -> int:
    return int(np.frombuffer(place, dtype=np.uint8).ctypes.data)


def test_memory_is_used_again_once_nobody_has_a_view_of_it() -> None:
    buffers = ReceiveBuffers()
    place = buffers.take(SIZE)
    first, tensor = _address(place), torch.frombuffer(place[16:], dtype=torch.float32)
    del place
    part = tensor[5:9]  # keeps all of it
    del tensor
    assert _address(buffers.take(SIZE)) != first
    del part
    assert _address(buffers.take(SIZE - 100)) == first


def test_idle_memory_is_bounded() -> None:
    buffers = ReceiveBuffers()
    places = [buffers.take(8 << 20) for _ in range(20)]
    assert len({_address(each) for each in places}) == 20
    places.clear()
    kept = buffers.take(9 << 20)  # none of them fits
    assert sum(map(len, buffers._kept)) <= (64 << 20) + len(kept) + (1 << 20)
