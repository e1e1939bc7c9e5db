"""Leases and batches as bytes: the samples that a trainer needs, and the micro-batches that were made of them."""

import json
import math
import struct
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from phalanx.config.text import read_json
from phalanx.data.base import MicroBatch
from phalanx.data.order import Indices, Share, Work
from phalanx.net.control import Refused

Bad = list[tuple[int, str]]  # (index, reason)

_LEASE = struct.Struct("<QI")  # epoch, number of micro-batches
_MADE = struct.Struct("<IHHHxxI")  # number of micro-batches, height, width, channels, classes if labels are several
_PART = struct.Struct("<II")  # number of the micro-batch in its step, samples


def pack_lease(work: Work) -> bytes:
    """What a server needs to know to make a batch. Only the trainer knows its place in the order."""
    parts = [_LEASE.pack(work.epoch, len(work.micro))]
    parts += [_PART.pack(number, len(indices)) for number, indices in work.micro]
    return b"".join([*parts, *(indices.astype("<i8").tobytes() for _, indices in work.micro)])


def unpack_lease(control: memoryview, num_samples: int, *, repeats: bool = False) -> Work:
    """The samples that a trainer needs of a split that has `num_samples`; with `repeats`, see `drawn_order`."""
    (epoch, count), table = _unpack(_LEASE, control, 0), _LEASE.size
    parts = [_unpack(_PART, control, table + i * _PART.size) for i in range(count)]
    start = table + count * _PART.size
    if not count or len(control) != start + 8 * sum(size for _, size in parts):
        raise Refused("length")
    indices = np.frombuffer(control, dtype="<i8", offset=start).astype(np.int64)
    if len(indices) and not (indices.min() >= 0 and indices.max() < num_samples * (num_samples if repeats else 1)):
        raise Refused("samples")
    cuts = np.cumsum([size for _, size in parts])[:-1]
    micro = tuple((number, part) for (number, _), part in zip(parts, np.split(indices, cuts), strict=True))
    return Work(epoch, 0, micro, len(indices), last=False)


@dataclass(frozen=True)
class PackedBatch:
    """A batch as bytes: labels and all else that is small, and the pixels of all micro-batches, one after another."""

    control: bytes
    pixels: torch.Tensor  # flat


def pack_batch(micro: list[MicroBatch], bad: Bad) -> PackedBatch:
    """A batch to be sent. The pixels of a single micro-batch are not copied."""
    channels, height, width = micro[0].images.shape[1:]
    classes = micro[0].labels.shape[1] if micro[0].labels.ndim == 2 else 0
    control = [_MADE.pack(len(micro), height, width, channels, classes)]
    control += [_PART.pack(m.number, m.count) for m in micro]
    for each in micro:
        labels = each.labels.numpy().astype("u1" if classes else "<i8")  # zeros and ones need no more
        control += [labels.tobytes(), each.indices.numpy().astype("<i8").tobytes()]
    control.append(json.dumps(bad, ensure_ascii=False).encode() if bad else b"")
    pixels = [each.images.permute(0, 2, 3, 1).reshape(-1) for each in micro]
    return PackedBatch(b"".join(control), pixels[0] if len(pixels) == 1 else torch.cat(pixels))


def unpack_batch(control: memoryview, pixels: torch.Tensor) -> tuple[list[MicroBatch], Bad]:
    """The micro-batches over the memory of `pixels`, images with channels last as the pipeline makes them."""
    (count, height, width, channels, classes), place = _unpack(_MADE, control, 0), _MADE.size
    parts = [_unpack(_PART, control, place + i * _PART.size) for i in range(count)]
    place += count * _PART.size
    samples = sum(size for _, size in parts)
    label_bytes = classes or 8
    if pixels.numel() != samples * height * width * channels or len(control) < place + (label_bytes + 8) * samples:
        raise Refused("length")
    micro, image_bytes, start = [], height * width * channels, 0
    for number, size in parts:
        images = pixels[start : start + size * image_bytes].view(size, height, width, channels).permute(0, 3, 1, 2)
        labels = _label_sets(control, place, size, classes) if classes else _integers(control, place, size)
        indices = _integers(control, place + label_bytes * size, size)
        micro.append(MicroBatch(number, images, torch.from_numpy(labels), torch.from_numpy(indices)))
        start, place = start + size * image_bytes, place + (label_bytes + 8) * size
    return micro, _bad(control[place:])


def slot_bytes(batch: int, share: Share, image_bytes: int) -> int:
    """The pixels of a worker's largest batch. An epoch's last one may have a sample more, or parts of up to three."""
    largest = max(3, math.ceil((batch + 1) / share.parts))
    return len(share.numbers()) * largest * image_bytes


def _integers(control: memoryview, place: int, count: int) -> Indices:
    return np.frombuffer(control, dtype="<i8", count=count, offset=place).astype(np.int64)


def _label_sets(control: memoryview, place: int, count: int, classes: int) -> Indices:
    found = np.frombuffer(control, dtype="u1", count=count * classes, offset=place)
    return found.reshape(count, classes).astype(np.int64)


def _bad(control: memoryview) -> Bad:
    if not len(control):
        return []
    try:
        return [(int(index), str(reason)) for index, reason in read_json(bytes(control))]
    except (ValueError, TypeError, OverflowError) as error:
        raise Refused("garbage") from error


def _unpack(form: struct.Struct, control: memoryview, place: int) -> tuple[Any, ...]:
    if len(control) < place + form.size:
        raise Refused("length")
    return form.unpack_from(control, place)
