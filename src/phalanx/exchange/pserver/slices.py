"""Cutting a model's parameters into slices: what is sent in one message, updates at once and has one version.

`phalanx plan` cuts models too, without torch: so it is imported only where tensors are.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from phalanx.config.schema import OptimConfig
from phalanx.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor

CUT_AT = 64  # elements: vectorised kernels then see the same tails as on the whole tensor, so results are bit-identical
_ALIGN = 16  # elements: every piece starts on a cache line
_MOST_PIECES = 64  # bits in a header that say which pieces have a gradient
_ITEM = 4  # bytes of a float32

# Optimizers that treat each element on its own, so that a tensor may be cut. Any other gets whole tensors.
_ELEMENTWISE = {
    *("sgd", "momentum", "adam", "adamw", "rmsprop", "nadam", "nadamw", "adamax", "adagrad", "adadelta", "radam"),
    *("lion", "adopt", "adabelief"),
}


@dataclass(frozen=True)
class Layout:
    """How a parameter lies in memory. Slices are cut in memory order, which is not logical order in channels_last."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]

    @classmethod
    def of(cls, tensor: "Tensor") -> "Layout":
        return cls(tuple(tensor.shape), tuple(tensor.stride()))


@dataclass(frozen=True)
class Piece:
    """Elements `start` to `stop` of a parameter in memory order, at `offset` in their slice."""

    name: str
    start: int
    stop: int
    offset: int
    whole: bool


@dataclass(frozen=True)
class Slice:
    """Some pieces that are sent, updated and versioned together, on one server."""

    number: int
    server: int
    pieces: tuple[Piece, ...]
    span: int  # elements, gaps between pieces included

    @property
    def bytes(self) -> int:
        return self.span * _ITEM

    def described(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_description(cls, described: Mapping[str, Any]) -> "Slice":
        pieces = tuple(Piece(**piece) for piece in described["pieces"])
        return cls(described["number"], described["server"], pieces, described["span"])


def cut(params: Mapping[str, int], num_servers: int, target_bytes: int = 4 << 20, whole: bool = False) -> list[Slice]:
    """Slices in the order of `params` (name → number of elements), balanced by bytes over the servers.

    Neighbours are grouped up to the target, so that a slice is complete soon after backward reaches it, and so that
    65 tensors do not cost 65 messages. A small model is cut finer, so that every server gets some of it.
    """
    total = sum(params.values()) * _ITEM
    target = max(CUT_AT, min(target_bytes, total // (2 * num_servers)) // _ITEM)
    groups: list[list[tuple[str, int, int]]] = [[]]
    room = target
    for name, numel in params.items():
        for start, stop in [(0, numel)] if whole else _ranges(numel, target):
            if groups[-1] and (stop - start > room or len(groups[-1]) == _MOST_PIECES):
                groups.append([])
                room = target
            groups[-1].append((name, start, stop))
            room -= stop - start
    slices = [_slice(number, group, params) for number, group in enumerate(groups) if group]
    return _spread(slices, num_servers)


def _ranges(numel: int, target: int) -> list[tuple[int, int]]:
    parts = -(-numel // target)
    length = -(-numel // (parts * CUT_AT)) * CUT_AT  # parts of about the same size
    return [(start, min(start + length, numel)) for start in range(0, numel, length)]


def _slice(number: int, group: Iterable[tuple[str, int, int]], params: Mapping[str, int]) -> Slice:
    pieces, offset = [], 0
    for name, start, stop in group:
        pieces.append(Piece(name, start, stop, offset, whole=stop - start == params[name]))
        offset += -(-(stop - start) // _ALIGN) * _ALIGN
    return Slice(number, 0, tuple(pieces), offset)


def _spread(slices: Sequence[Slice], num_servers: int) -> list[Slice]:
    """The largest slices first, each to the server that has least."""
    load = [0] * num_servers
    home: dict[int, int] = {}
    for each in sorted(slices, key=lambda each: -each.span):
        home[each.number] = min(range(num_servers), key=lambda server: load[server])
        load[home[each.number]] += each.span
    return [Slice(each.number, home[each.number], each.pieces, each.span) for each in slices]


def offsets(slices: Iterable[Slice], start: int) -> tuple[dict[int, int], int]:
    """Where each slice begins in a memory area, in bytes from its beginning, and the area's size."""
    places, end = {}, start
    for each in slices:
        places[each.number] = end
        end += each.bytes
    return places, end


def views(flat: "Tensor", slice_: Slice, layouts: Mapping[str, Layout]) -> "list[Tensor]":
    """A slice's pieces as tensors over its memory: whole parameters in their own shape, others one-dimensional."""
    found = []
    for piece in slice_.pieces:
        part = flat[piece.offset : piece.offset + piece.stop - piece.start]
        if piece.whole:
            layout = layouts[piece.name]
            part = part.as_strided(layout.shape, layout.stride, part.storage_offset())
        found.append(part)
    return found


def part_of(tensor: "Tensor", piece: Piece) -> "Tensor":
    """A piece's elements of a whole parameter (or of its gradient or its momentum), without a copy."""
    return tensor if piece.whole else in_memory_order(tensor)[piece.start : piece.stop]


def in_memory_order(tensor: "Tensor") -> "Tensor":
    """All elements of a dense tensor as they lie in memory."""
    return tensor.as_strided((tensor.numel(),), (1,), tensor.storage_offset())


def like(layout: Layout, value: "Tensor") -> "Tensor":
    """The same values, lying in memory as the parameter does: optimizers read state and parameter side by side."""
    if tuple(value.stride()) == layout.stride:
        return value
    import torch

    return torch.empty_strided(layout.shape, layout.stride, dtype=value.dtype, device=value.device).copy_(value)


def needs_whole(config: OptimConfig) -> bool:
    """Whether this optimizer must see whole tensors: it takes norms, means or factors of them."""
    return config.name.lower() not in _ELEMENTWISE or bool(config.options.get("caution"))


def refuse_global(config: OptimConfig) -> None:
    """Refuse what needs all gradients at once: no server ever sees them all."""
    remedy = "use --update-method collective"
    if config.clip_norm is not None:
        raise UserError(
            "optim.clip_norm does not work with parameter servers",
            why="the global norm is known only after all servers have summed, when slices are already updated",
            remedy=f"{remedy}, or leave optim.clip_norm out",
        )
    if config.name.lower().startswith("lamb") and config.options.get("max_grad_norm", 1.0) is not None:
        raise UserError(
            f"optim.name={config.name} clips by the global norm, which does not work with parameter servers",
            why="each server sees only its own slices of the gradient",
            remedy=f"{remedy}, or set optim.options={{max_grad_norm: null}}",
        )
