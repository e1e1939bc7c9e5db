"""Find the batch norms of a model and what follows them, and have them computed together (see normalization.py).

Each module that owns batch norms is traced by itself, with its children as they are. In what it does, `relu(norm(x))`
and `relu(norm(x) + y)` become one call. The module stays itself: its class gets a subclass that takes this way in
training, so that parameters, names, what is saved and what is exported do not change.
"""

import operator
from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor, fx, nn
from torch.nn import functional as F

from phalanx.engine.normalization import normalize

_RELUS = (F.relu, torch.relu, torch.relu_)
_SUMS = (("call_function", operator.add), ("call_function", torch.add), ("call_method", "add"))
_SUMS_INTO = (("call_function", operator.iadd), ("call_method", "add_"))


def fuse_norms(model: nn.Module) -> int:
    """How many batch norms of the model are computed together with what follows."""
    fused = 0
    for module in list(model.modules()):
        if any(type(child) is nn.BatchNorm2d for child in module.children()):
            fused += _fuse(module)
        elif _ends_active(module):
            module.__class__ = _subclass(type(module), _active_norm)
            fused += 1
    return fused


class _Shallow(fx.Tracer):
    """Looks into one module only."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return True


def _fuse(module: nn.Module) -> int:
    was = module.training
    module.training = True
    try:
        graph = _Shallow().trace(module)
    except Exception:  # what it does depends on its data: it stays as it is
        return 0
    finally:
        module.training = was
    if any(node.op == "get_attr" and "_tensor_constant" in str(node.target) for node in graph.nodes):
        return 0  # something was drawn or made while tracing, which each step has to do anew
    norms = [node for node in graph.nodes if type(_child(module, node)) is nn.BatchNorm2d]
    for norm in norms:
        _replace(module, graph, norm)
    graph.lint()
    module.__class__ = _subclass(type(module), type(fx.GraphModule(module, graph)).forward)
    return len(norms)


def _subclass(own: type[nn.Module], fused: Callable[..., Any]) -> type[nn.Module]:
    """Goes the fused way in training, and its own way otherwise."""

    def forward(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        way = fused if self.training and torch.is_grad_enabled() else own.forward
        return way(self, *args, **kwargs)

    return type(own.__name__, (own,), {"forward": forward, "__module__": own.__module__})


def _replace(module: nn.Module, graph: fx.Graph, norm: fx.Node) -> None:
    """One call instead of a norm, an addition if there is one, and a relu if there is one."""
    chain, added, relu = [norm], None, False
    first = _followers(module, norm)
    if first and _is_relu(module, first[-1]):
        chain, relu = [norm, *first], True
    elif first and (other := _other_summand(first[-1], [norm, *first][-2])) is not None:
        second = _followers(module, first[-1])
        if second and _is_relu(module, second[-1]):
            chain, added, relu = [norm, *first, *second], other, True
    with graph.inserting_before(chain[-1]):
        call = graph.call_function(normalize, (graph.get_attr(str(norm.target)), norm.args[0], added, relu))
    chain[-1].replace_all_uses_with(call)
    for node in reversed(chain):
        graph.erase_node(node)


def _followers(module: nn.Module, node: fx.Node) -> list[fx.Node]:
    """The nodes that a value goes through, if nothing else uses it: what passes it on, then the first other."""
    found = []
    while len(node.users) == 1:
        (node,) = node.users
        found.append(node)
        if not isinstance(_child(module, node), nn.Identity):
            return found
    return []


def _is_relu(module: nn.Module, node: fx.Node) -> bool:
    return (
        type(_child(module, node)) is nn.ReLU
        or (node.op == "call_function" and node.target in _RELUS)
        or (node.op == "call_method" and node.target in ("relu", "relu_"))
    )


def _other_summand(node: fx.Node, one: fx.Node) -> fx.Node | None:
    """What is added to `one` in this node, if it is a sum. `other += one` changes `other`, and is left alone."""
    plain = (node.op, node.target) in _SUMS
    into = (node.op, node.target) in _SUMS_INTO
    if not (plain or into) or len(node.args) != 2 or node.kwargs:
        return None
    left, right = node.args
    if left is one and isinstance(right, fx.Node):
        return right
    return left if plain and right is one and isinstance(left, fx.Node) else None


def _child(module: nn.Module, node: fx.Node) -> nn.Module | None:
    return module.get_submodule(str(node.target)) if node.op == "call_module" else None


def _ends_active(module: nn.Module) -> bool:
    """Whether it is timm's batch norm that also activates."""
    named = type(module).__name__ == "BatchNormAct2d" and isinstance(module, nn.BatchNorm2d)
    return named and isinstance(getattr(module, "drop", None), nn.Identity)


def _active_norm(self: nn.Module, x: Tensor) -> Tensor:
    assert isinstance(self, nn.BatchNorm2d)
    act = cast(nn.Module, self.act)
    relu = type(act) is nn.ReLU
    y = normalize(self, x, None, relu)
    return y if relu else cast(Tensor, act(y))
