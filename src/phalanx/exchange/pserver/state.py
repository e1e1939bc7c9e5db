"""The optimizer's state, joined from slices and cut into them: a checkpoint does not depend on servers."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from safetensors.torch import load, save
from torch import Tensor

from phalanx.config.patterns import factor_of
from phalanx.exchange.pserver.slices import Layout, Piece, Slice, in_memory_order, like, part_of
from phalanx.optim.update import GroupKey

Tensors = dict[str, Tensor]
Scalars = dict[str, Any]
_SCALARS = "scalars"  # no parameter is called that: names in a state contain a slash


def pack(tensors: Mapping[str, Tensor], scalars: Mapping[str, Any]) -> bytes:
    """Tensors and JSON in one safetensors message."""
    packed = torch.frombuffer(bytearray(json.dumps(scalars).encode()), dtype=torch.uint8)
    return bytes(save({**{key: value.contiguous() for key, value in tensors.items()}, _SCALARS: packed}))


def unpack(payload: memoryview | bytes) -> tuple[Tensors, Scalars]:
    tensors = load(bytes(payload))
    scalars: Scalars = json.loads(bytes(tensors.pop(_SCALARS).tolist()))
    return tensors, scalars


def join(
    parts: Sequence[tuple[Slice, Tensors, Scalars]],
    layouts: Mapping[str, Layout],
    exempt: set[str],
    rates: Mapping[str, float],
) -> tuple[Tensors, Scalars]:
    """The states of all slices as one state, with the names and shapes that a local update gives."""
    whole: Tensors = {}
    slots: Scalars = {}
    counters: dict[GroupKey, dict[str, Any]] = {}
    name = ""
    for slice_, tensors, scalars in parts:
        name = scalars["name"]
        keys = _group_keys((piece.name for piece in slice_.pieces), exempt, rates)
        for group_key, group in zip(keys, scalars["groups"], strict=True):
            counters.setdefault(group_key, group)
        for piece in slice_.pieces:
            for key, value in _slots_of(piece, tensors):
                _put(whole, key, value, piece, layouts[piece.name])
            slots.update(_slots_of(piece, scalars["slots"]))
    return whole, {"name": name, "slots": slots, "groups": [counters[each] for each in sorted(counters)]}


def part(
    slice_: Slice,
    tensors: Mapping[str, Tensor],
    scalars: Mapping[str, Any],
    layouts: Mapping[str, Layout],
    exempt: set[str],
    rates: Mapping[str, float],
) -> tuple[Tensors, Scalars]:
    """A slice's part of a whole state: the inverse of `join`."""
    mine: Tensors = {}
    slots: Scalars = {}
    for piece in slice_.pieces:
        layout = layouts[piece.name]
        for key, value in _under(piece.name, tensors):
            if tuple(value.shape) == layout.shape:
                value = part_of(like(layout, value.cpu()), piece)
            mine[_piece_key(piece, key)] = value
        slots.update((_piece_key(piece, key), value) for key, value in _under(piece.name, scalars["slots"]))
    keys = _group_keys((piece.name for piece in slice_.pieces), exempt, rates)
    groups, whole = scalars["groups"], _group_keys(layouts, exempt, rates)
    # A slice may have some of the groups only. A state saved with other groups has the same counters in each.
    chosen = [groups[whole.index(each)] if len(groups) == len(whole) else groups[0] for each in keys] if groups else []
    return mine, {"name": scalars["name"], "slots": slots, "groups": chosen}


def _group_keys(names: Iterable[str], exempt: set[str], rates: Mapping[str, float]) -> list[GroupKey]:
    """The optimizer's groups for these parameters, in the order that `Update` gives them."""
    return sorted({(name in exempt, factor_of(name, rates)) for name in names})


def _put(whole: Tensors, key: str, value: Tensor, piece: Piece, layout: Layout) -> None:
    if piece.whole:
        whole[key] = like(layout, value) if tuple(value.shape) == layout.shape else value
    elif value.dim() == 0:  # such as Adam's count of steps, the same for all pieces
        whole.setdefault(key, value)
    else:
        if key not in whole:
            whole[key] = torch.empty_strided(layout.shape, layout.stride, dtype=value.dtype)
        in_memory_order(whole[key])[piece.start : piece.stop] = value


def _slots_of(piece: Piece, named: Mapping[str, Any]) -> list[tuple[str, Any]]:
    prefix = f"{piece.name}@{piece.start}/"
    return [(f"{piece.name}/{key[len(prefix) :]}", value) for key, value in named.items() if key.startswith(prefix)]


def _under(name: str, named: Mapping[str, Any]) -> list[tuple[str, Any]]:
    return [(key, value) for key, value in named.items() if key.rsplit("/", 1)[0] == name]


def _piece_key(piece: Piece, key: str) -> str:
    return f"{piece.name}@{piece.start}/{key.rsplit('/', 1)[1]}"
