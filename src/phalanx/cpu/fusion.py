"""Find the batch norms of a model, and fuse each with the addition and activation that follow (normalization.py).

Each module that owns batch norms is traced with torch.fx, its children as leaves. In the graph, `act(norm(x))` and
`relu(norm(x) + y)` become one call. The module stays the same object: its class becomes a subclass that runs the fused
graph in training only, so that parameters, state dicts and exported models do not change. A module is left unchanged if
its forward does anything that a trace would lose.
"""

import dis
import itertools
import operator
from collections import Counter
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType
from typing import Any, cast

import torch
from torch import Tensor, fx, nn
from torch.nn import functional as F

from phalanx.cpu.normalization import is_norm, normalize
from phalanx.native.build import load_library

# The activations of normalize(), as modules, functions and methods.
_MODULES: dict[type, str] = {
    nn.ReLU: "relu",
    nn.ReLU6: "relu6",
    nn.Hardswish: "hardswish",
    nn.SiLU: "silu",
    nn.GELU: "gelu",
}
_FUNCTIONS: dict[Any, str] = {
    **{F.relu: "relu", torch.relu: "relu", torch.relu_: "relu"},
    **{F.relu6: "relu6", F.hardswish: "hardswish", F.silu: "silu", F.gelu: "gelu"},
}
_METHODS: dict[Any, str] = {"relu": "relu", "relu_": "relu"}
_SUMS = (("call_function", operator.add), ("call_function", torch.add), ("call_method", "add"))
_SUMS_INTO = (("call_function", operator.iadd), ("call_method", "add_"))
# Calls that a trace would make once for all steps, or not at all. Checkpointing is checked again in each step.
_LOST = {
    *("isinstance", "type", "item", "tolist", "numpy", "random", "rand", "randn", "randint", "randperm", "bernoulli"),
    *("no_grad", "enable_grad", "inference_mode", "set_grad_enabled", "autocast", "checkpoint", "record_function"),
}
_CHECKPOINTED = "grad_checkpointing"  # timm's switch
_MARK = "_phalanx_fused"


def fuse_norms(model: nn.Module) -> int:
    """Fuse the model's batch norms, in place. Returns how many."""
    if load_library("norm") is None:
        return 0
    fused = 0
    for module in list(model.modules()):
        if any(is_norm(child) for child in module.children()):
            try:
                fused += _fuse(module)
            except Exception:  # it cannot be traced, for example because it depends on its data
                continue
        elif _ends_active(module):
            _subclass(module, _active_norm, [])
            fused += 1
    return fused


class _Shallow(fx.Tracer):
    """Traces one module; its children are leaves."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return True


def _fuse(module: nn.Module) -> int:
    if _loses_something(module):
        return 0
    was = module.training
    module.training = True
    try:
        graph = _Shallow().trace(module)
    finally:
        module.training = was
    if any(node.op == "placeholder" and node.args for node in graph.nodes):
        return 0  # an argument with a default: the trace is only right for calls without it
    if any(node.op == "get_attr" and "_tensor_constant" in str(node.target) for node in graph.nodes):
        return 0  # the forward creates a tensor, which each step must create again
    norms = [node for node in graph.nodes if is_norm(_child(module, node))]
    times = Counter(node.target for node in norms)
    norms = [node for node in norms if times[node.target] == 1 and len(node.args) == 1 and not node.kwargs]
    replaced: list[str] = []
    for norm in norms:
        replaced += _replace(module, graph, norm)
    graph.lint()
    _subclass(module, type(fx.GraphModule(module, graph)).forward, replaced)
    return len(norms)


def _subclass(module: nn.Module, fused: Callable[..., Any], children: list[str]) -> None:
    """Run the fused forward in training, and the module's own otherwise. The fused one does not call `children`."""
    own = type(module)

    def forward(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        chosen = fused if _may_fuse(self, children) else own.forward
        return chosen(self, *args, **kwargs)

    made = type(own.__name__, (own,), {"forward": forward, "__module__": own.__module__})
    module.__dict__[_MARK] = True  # on the instance: a slice of a Sequential has the class, but not this graph
    module.__class__ = made


def _may_fuse(module: nn.Module, children: list[str]) -> bool:
    return (
        module.training
        and torch.is_grad_enabled()
        and _MARK in module.__dict__
        and not getattr(module, _CHECKPOINTED, False)
        and not any(_has_hooks(module.get_submodule(name)) for name in children)
    )


def _has_hooks(module: nn.Module) -> bool:
    return bool(
        module._forward_hooks or module._forward_pre_hooks or module._backward_hooks or module._backward_pre_hooks
    )


def _loses_something(module: nn.Module) -> bool:
    """Whether its forward, or a method that it calls, does something that a trace would lose."""
    for code in _codes(type(module), type(module).forward.__code__, set()):
        names = {*code.co_names}
        if names & _LOST:
            return True
        if any(name.startswith("checkpoint") for name in names) and not hasattr(module, _CHECKPOINTED):
            return True
        if any(instruction.opname in ("STORE_ATTR", "STORE_GLOBAL") for instruction in dis.get_instructions(code)):
            return True
    return False


def _codes(own: type, code: CodeType, seen: set[str]) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(own, constant, seen)
    for name in code.co_names:
        method = getattr(own, name, None)
        if name not in seen and isinstance(method, FunctionType) and not hasattr(nn.Module, name):
            seen.add(name)
            yield from _codes(own, method.__code__, seen)


def _replace(module: nn.Module, graph: fx.Graph, norm: fx.Node) -> list[str]:
    """Replace a norm, and the addition and activation that follow, by one call. Returns the children it replaces."""
    chain, added, act = [norm], None, None
    first = _followers(module, norm)
    if first and not _changed(module, norm.args[0]):
        if found := _activation(module, first[-1]):
            chain, act = [norm, *first], found
        elif (other := _other_summand(first[-1], [norm, *first][-2])) is not None:
            second = _followers(module, first[-1])
            if second and _activation(module, second[-1]) == "relu" and _adjoin([first[-1], *second]):
                chain, added, act = [norm, *first, *second], other, "relu"
    with graph.inserting_before(chain[-1]):
        call = graph.call_function(normalize, (graph.get_attr(str(norm.target)), norm.args[0], added, act))
    chain[-1].replace_all_uses_with(call)
    for node in reversed(chain):
        graph.erase_node(node)
    return [str(node.target) for node in chain if node.op == "call_module"]


def _changed(module: nn.Module, node: Any) -> bool:
    """Whether something changes this value in place. The fused call reads it later than the norm did."""
    return any(
        (user.op == "call_method" and str(user.target).endswith("_"))
        or (user.op == "call_function" and getattr(user.target, "__name__", "").startswith("i"))
        or (user.op == "call_function" and getattr(user.target, "__name__", "").endswith("_"))
        or bool(user.kwargs.get("inplace"))
        or getattr(_child(module, user), "inplace", False)
        for user in node.users
    )


def _adjoin(nodes: list[fx.Node]) -> bool:
    """Whether the nodes follow one another directly."""
    return all(before.next is after for before, after in itertools.pairwise(nodes))


def _followers(module: nn.Module, node: fx.Node) -> list[fx.Node]:
    """The nodes that use a value, if each has one user: identities, then the first other module."""
    found = []
    while len(node.users) == 1:
        (node,) = node.users
        found.append(node)
        if not isinstance(_child(module, node), nn.Identity):
            return found
    return []


def _activation(module: nn.Module, node: fx.Node) -> str | None:
    if node.op == "call_module":
        return _activation_of(_child(module, node))
    if node.kwargs.keys() - {"input", "inplace"}:
        return None  # such as gelu's approximation
    known = {"call_function": _FUNCTIONS, "call_method": _METHODS}.get(node.op, {})
    return known.get(node.target)


def _activation_of(module: nn.Module | None) -> str | None:
    if isinstance(module, nn.GELU) and module.approximate != "none":
        return None
    return _MODULES.get(type(module))


def _other_summand(node: fx.Node, one: fx.Node) -> fx.Node | None:
    """The other operand if this node adds something to `one`. `other += one` changes `other`, so it does not count."""
    plain = (node.op, node.target) in _SUMS
    into = (node.op, node.target) in _SUMS_INTO
    if not (plain or into) or len(node.args) != 2 or node.kwargs or node.args[0] is node.args[1]:
        return None
    left, right = node.args
    if left is one and isinstance(right, fx.Node):
        return right
    return left if plain and right is one and isinstance(left, fx.Node) else None


def _child(module: nn.Module, node: fx.Node) -> nn.Module | None:
    return module.get_submodule(str(node.target)) if node.op == "call_module" else None


def _ends_active(module: nn.Module) -> bool:
    """Whether it is timm's BatchNormAct2d: a batch norm with an activation inside."""
    named = type(module).__name__ == "BatchNormAct2d" and isinstance(module, nn.BatchNorm2d)
    return named and isinstance(getattr(module, "drop", None), nn.Identity)


def _active_norm(self: nn.Module, x: Tensor) -> Tensor:
    act = cast(nn.Module, self.act)
    known = None if _has_hooks(act) else _activation_of(act)
    y = normalize(self, x, None, known)
    return y if known else cast(Tensor, act(y))
