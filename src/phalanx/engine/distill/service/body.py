"""Views and logits as bytes: the pixels of a micro-batch with its place in the run, and what the teachers say."""

import struct
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from phalanx.data.base import MicroBatch
from phalanx.net import shared_memory as memory
from phalanx.net.control import MAX_MESSAGE_BYTES, Refused

_VIEW = struct.Struct("<QQQIIHHH")  # epoch, start, step, number of the micro-batch, samples, channels, height, width
_LOGITS = struct.Struct("<III4s")  # teachers, samples, classes, type of a number
_TYPES = {b"fp32": torch.float32, b"bf16": torch.bfloat16}


@dataclass(frozen=True)
class SentView:
    """A micro-batch of bytes and its place: with the seed, all that decides what the model sees."""

    micro: MicroBatch
    epoch: int
    start: int
    step: int


def pack_view(view: SentView) -> tuple[bytes, memoryview]:
    """Control data and body. Bytes are a quarter of the model's input, and the rest is a pure function of them."""
    micro = view.micro
    channels, height, width = micro.images.shape[1:]
    head = _VIEW.pack(view.epoch, view.start, view.step, micro.number, micro.count, channels, height, width)
    pixels = micro.images.permute(0, 2, 3, 1).contiguous().reshape(-1)
    return head + micro.indices.numpy().astype("<i8").tobytes(), memory.raw(pixels)


def unpack_view(control: memoryview, body: Any) -> SentView:
    """The view of a message. Teachers see no labels, so there are none."""
    if len(control) < _VIEW.size or body is None:
        raise Refused("length")
    epoch, start, step, number, count, channels, height, width = _VIEW.unpack_from(control)
    size = count * channels * height * width
    if not 0 < size <= MAX_MESSAGE_BYTES or len(body) != size or len(control) != _VIEW.size + 8 * count:
        raise Refused("length")
    if epoch >= 1 << 62 or start >= 1 << 62 or step >= 1 << 62:
        raise Refused("garbage")
    indices = np.frombuffer(control, dtype="<i8", offset=_VIEW.size).astype(np.int64)
    if indices.min() < 0:
        raise Refused("samples")
    pixels = torch.frombuffer(bytearray(body), dtype=torch.uint8).view(count, height, width, channels)
    micro = MicroBatch(
        number, pixels.permute(0, 3, 1, 2), torch.zeros(count, dtype=torch.int64), torch.from_numpy(indices)
    )
    return SentView(micro, epoch, start, step)


def pack_logits(logits: Tensor, precision: str) -> tuple[bytes, bytes]:
    """Logits (teachers, samples, classes) as control data and body."""
    name = precision.encode()
    sent = logits.detach().to(device="cpu", dtype=_TYPES[name]).contiguous()
    return _LOGITS.pack(*sent.shape, name), sent.view(torch.uint8).numpy().tobytes()


def unpack_logits(control: memoryview, body: Any) -> Tensor:
    """The logits of a message, in float32."""
    if len(control) != _LOGITS.size or body is None:
        raise Refused("length")
    teachers, samples, classes, name = _LOGITS.unpack(control)
    dtype = _TYPES.get(name)
    if dtype is None:
        raise Refused("garbage")
    if not teachers * samples * classes or len(body) != teachers * samples * classes * dtype.itemsize:
        raise Refused("length")
    return torch.frombuffer(bytearray(body), dtype=dtype).view(teachers, samples, classes).float()
