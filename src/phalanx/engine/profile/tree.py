"""From spans to where the time of a step goes: a tree of parts, layers and operators; sums by kind and by layer."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from phalanx.engine.profile.kinds import COPIES, DATA, EXCHANGE, IDLE, OPTIMIZER, OTHER, PYTHON, computes, kind_of
from phalanx.engine.profile.spans import EVALUATED, LAYER, NATIVE, PART, Recording, Span

MODEL = "model"  # what the whole model is called in trees
WAITING = "waiting for the exchange"
_ELSEWHERE = "other"  # the part of a step that no scope names
_WHOLE = (DATA, EXCHANGE, OPTIMIZER)  # everything inside is of this kind
_SMALLEST = 0.0002  # of a step: what is smaller is counted to its caller


@dataclass
class Node:
    """Calls of one name below one caller, of all steps together. Nanoseconds."""

    name: str
    kind: str
    layer: str | None = None  # the path of the module, if it is one
    total: int = 0
    calls: int = 0
    children: dict[str, "Node"] = field(default_factory=dict)

    def child(self, name: str, kind: str, layer: str | None = None) -> "Node":
        return self.children.setdefault(name, Node(name, kind, layer))

    def to_data(self, steps: int, least: float) -> dict[str, Any]:
        """Milliseconds and calls of a step, without what takes less than `least` nanoseconds of all steps."""
        about: dict[str, Any] = {"name": self.name, "kind": self.kind, "ms": ms(self.total, steps)}
        if self.layer is not None:
            about["layer"] = self.layer
        shown = [each.to_data(steps, least) for each in self.children.values() if each.total >= least]
        return {**about, "calls": round(self.calls / steps, 3), "children": shown}


@dataclass
class KindTotal:
    """The time of one kind of work, of all steps together, and its outermost calls."""

    nanoseconds: int = 0
    calls: int = 0


@dataclass
class LayerTotal:
    """What a module takes in all steps, with the modules inside. Nanoseconds."""

    forward: int = 0
    backward: int = 0
    calls: int = 0


@dataclass
class _Open:
    """A span that later ones may lie in."""

    span: Span
    node: Node
    kind: str | None  # of what is computed inside
    layer: str | None
    again: bool = False  # the same call as the one around it, seen twice
    inner: int = 0  # nanoseconds of the spans directly inside
    kernels: int = 0


class Taken:
    """The time of all recorded steps, taken apart in three ways."""

    def __init__(self, recording: Recording) -> None:
        self.steps, self.on_gpu = len(recording.steps), recording.on_gpu
        self.wall = round(sum(step.wall for step in recording.steps) * 1e9)
        self.root = Node("step", PYTHON, total=self.wall, calls=self.steps)
        self.kinds: dict[str, KindTotal] = {}
        self.layers: dict[str, LayerTotal] = {}  # in the order of their first use
        self.parts: dict[str, int] = {}  # nanoseconds in the scopes of parts
        self._made_in = _makers(recording)
        self._updated_elsewhere = _updated_elsewhere(recording)
        self._take(recording)

    def tree(self) -> dict[str, Any]:
        """The tree as plain data: milliseconds of a step."""
        return self.root.to_data(self.steps, _SMALLEST * self.wall)

    def _take(self, recording: Recording) -> None:
        others = sorted({one.thread for one in recording.spans if not one.on_gpu} - {recording.thread})
        for thread in (recording.thread, *others):
            spans = [span for span in recording.spans if span.thread == thread and not span.on_gpu]
            self._walk(spans, _ELSEWHERE if thread == recording.thread else "backward")
        for step in recording.steps:
            self._wait(min(round(step.inside_backward * 1e9), self._kind(PYTHON).nanoseconds))
        known = sum(total.nanoseconds for total in self.kinds.values())
        self._kind(IDLE if self.on_gpu else PYTHON).nanoseconds += max(0, self.wall - known)

    def _walk(self, spans: Iterable[Span], elsewhere: str) -> None:
        open_: list[_Open] = []
        for span in spans:
            while open_ and open_[-1].span.end <= span.start:
                self._close(open_)
            open_.append(self._open(span, open_[-1] if open_ else None, elsewhere))
        while open_:
            self._close(open_)

    def _open(self, span: Span, around: _Open | None, elsewhere: str) -> _Open:
        above = around.node if around else self.root
        layer = around.layer if around else None
        kind = self._kind_inside(span.name, around.kind if around else None)
        name = span.name
        if name.startswith(PART):
            return _Open(span, above.child(name.removeprefix(PART), kind or PYTHON), kind, layer)
        if around is None:
            above = self.root.child(elsewhere, PYTHON)
            if not name.startswith(EVALUATED):
                above.total += span.end - span.start
        if around is not None and _same_call(span.name, around.span.name):
            return _Open(span, around.node, kind, layer, again=True)
        if name.startswith(LAYER):
            path = name.removeprefix(LAYER)
            self.layers.setdefault(path, LayerTotal())
            return _Open(span, above.child(_below(path, layer), PYTHON, path), kind, path)
        if name.startswith(EVALUATED):
            layer = self._made_in.get(span.sequence, layer)
            above = self._layer_node(above, layer)
        bare = name.removeprefix(EVALUATED).removeprefix(NATIVE)
        return _Open(span, above.child(bare, kind or OTHER), kind, layer)

    def _kind_inside(self, name: str, around: str | None) -> str | None:
        if around in _WHOLE:
            return around
        own = kind_of(name)
        if own == OPTIMIZER and self._updated_elsewhere:
            return EXCHANGE
        return own if own in (COPIES, *_WHOLE) or around is None else around

    def _layer_node(self, above: Node, layer: str | None) -> Node:
        """The node of a layer inside backward, whose spans do not nest by layer."""
        if layer is None:
            return above
        around: str | None = None
        for path in (each for each in _prefixes(layer) if each in self.layers):
            above, around = above.child(_below(path, around), PYTHON, path), path
        return above

    def _close(self, open_: list[_Open]) -> None:
        done = open_.pop()
        span, took = done.span, done.span.end - done.span.start
        kernels = done.kernels + span.kernels_ns
        if open_:
            open_[-1].inner += took
            open_[-1].kernels += kernels
        if span.name.startswith(PART):
            part = span.name.removeprefix(PART)
            self.parts[part] = self.parts.get(part, 0) + took
        own = span.kernels_ns if self.on_gpu and done.kind != DATA else max(0, took - done.inner)
        found = self._kind((done.kind or OTHER) if computes(span.name) else PYTHON)
        found.nanoseconds += own
        if computes(span.name) and not span.name.startswith(PART):
            found.calls += not open_ or open_[-1].kind != done.kind or not computes(open_[-1].span.name)
        if not done.again:
            took = kernels if self.on_gpu and not span.name.startswith(PART) else took
            done.node.total += took
            done.node.calls += 1
            self._count_layer(done, took, in_backward=any(each.span.name == f"{PART}backward" for each in open_))

    def _count_layer(self, done: _Open, took: int, *, in_backward: bool) -> None:
        name = done.span.name
        if name.startswith(LAYER):
            total = self.layers[name.removeprefix(LAYER)]
            total.calls += not in_backward
            if not in_backward:
                total.forward += took
        elif name.startswith(EVALUATED) and done.layer is not None:
            node = self.root.child("backward", PYTHON)
            for path in (each for each in _prefixes(done.layer) if each in self.layers):
                self.layers[path].backward += took
            self._add_to_chain(node, done.layer, took)

    def _add_to_chain(self, node: Node, layer: str, took: int) -> None:
        around: str | None = None
        for path in (each for each in _prefixes(layer) if each in self.layers):
            node, around = node.child(_below(path, around), PYTHON, path), path
            node.total += took
            node.calls = self.layers[path].calls

    def _wait(self, nanoseconds: int) -> None:
        """Backward waits at its end for gradients of other workers: no span says so."""
        if nanoseconds <= 0:
            return
        node = self.root.child("backward", PYTHON).child(WAITING, EXCHANGE)
        node.total, node.calls = node.total + nanoseconds, node.calls + 1
        self._kind(PYTHON).nanoseconds -= nanoseconds
        self._kind(EXCHANGE).nanoseconds += nanoseconds

    def _kind(self, name: str) -> KindTotal:
        return self.kinds.setdefault(name, KindTotal())


def ms(nanoseconds: float, steps: int) -> float:
    return round(nanoseconds / 1e6 / steps, 6)


def _same_call(name: str, around: str) -> bool:
    """Whether two spans, one directly in the other, are of one call."""
    return name == around.removeprefix(EVALUATED) or (name == around and name.startswith(LAYER))


def _prefixes(path: str) -> list[str]:
    """The paths of a module and of those around it, from the model on: "", a, a.b."""
    words = path.split(".") if path else []
    return ["", *(".".join(words[: count + 1]) for count in range(len(words)))]


def _below(path: str, around: str | None) -> str:
    """What a module is called below the one around it."""
    return (path.removeprefix(f"{around}.") if around else path) or MODEL


def _makers(recording: Recording) -> dict[int, str]:
    """By number of a node of the autograd graph: the layer that made it.

    Operators before it may bear its number, too; the last one made it.
    """
    made: dict[int, str | None] = {}
    open_: list[tuple[Span, str | None]] = []
    for span in recording.spans:
        if span.thread != recording.thread or span.on_gpu:
            continue
        while open_ and open_[-1][0].end <= span.start:
            open_.pop()
        layer = span.name.removeprefix(LAYER) if span.name.startswith(LAYER) else open_[-1][1] if open_ else None
        open_.append((span, layer))
        if span.sequence >= 0 and not span.backward:
            made[span.sequence] = layer
    return {number: layer for number, layer in made.items() if layer is not None}


def _updated_elsewhere(recording: Recording) -> bool:
    """Whether parameter servers make the update: then what is spent on it here is exchange."""
    scopes = sum(span.end - span.start for span in recording.spans if span.name == f"{PART}update")
    return sum(step.update for step in recording.steps) * 1e9 < scopes / 2
