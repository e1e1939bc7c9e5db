"""The kind of work of an operator, by its name."""

import re

from phalanx.engine.profile.spans import EVALUATED, LAYER, NATIVE, PART

CONVOLUTION, PRODUCT, NORM, ACTIVATION = "convolution", "matrix product", "normalization", "activation"
POOLING, ELEMENTWISE, COPIES, LOSS = "pooling", "element-wise", "copies and casts", "loss"
OPTIMIZER, EXCHANGE, DATA, PYTHON, OTHER = "optimizer", "exchange", "data wait", "Python and dispatch", "other"
IDLE = "GPU idle"  # or a GPU that works for what no operator has called

# The first pattern that is found decides. Names of operators, of nodes of the autograd graph, and of our own functions.
_PATTERNS = [
    (EXCHANGE, r"^(c10d|gloo|nccl|mpi)[:_]|all_?reduce|all_?gather"),
    (COPIES, r"^aten::(copy_|contiguous|clone|to|_to_copy|cat|stack|constant_pad_nd|pad|im2col|col2im|_reshape_copy)$"),
    (CONVOLUTION, r"conv|winograd"),
    (
        PRODUCT,
        r"^aten::(mm|addmm|bmm|baddbmm|matmul|linear|einsum|dot)$|addmm_|mkldnn_linear|attention|Addmm|MmBack|Bmm",
    ),
    (NORM, r"norm_(forward|backward)|_Normalize|(batch|layer|group|instance|rms)_?norm"),
    (POOLING, r"pool|^aten::(mean|amax|max)$|MeanBackward|AmaxBackward|MaxBackward|upsample"),
    (LOSS, r"loss|softmax|cross_entropy|SoftmaxBack|NllLoss|argmax|topk"),
    (ACTIVATION, r"relu|gelu|silu|hardswish|hardtanh|hardsigmoid|sigmoid|tanh|threshold|clamp|mish|elu|dropout"),
    (
        ELEMENTWISE,
        r"^aten::(add|sub|mul|div|neg|where|lerp|sum|pow|sqrt|rsqrt|exp|log|fill|zero|addcmul|addcdiv|bernoulli)_?$",
    ),
    (ELEMENTWISE, r"^(Add|Sub|Mul|Div|Sum|Neg|Pow|Where|Expand)Backward"),
]
_COMPILED = [(kind, re.compile(pattern, re.IGNORECASE)) for kind, pattern in _PATTERNS]
_SCOPES = {f"{PART}data": DATA, f"{PART}synchronise": EXCHANGE, f"{PART}update": OPTIMIZER}


def kind_of(name: str) -> str | None:
    """What is computed below a span of this name; None where the name does not say."""
    if name.startswith((PART, LAYER)):
        return _SCOPES.get(name)
    bare = name.removeprefix(EVALUATED).removeprefix(NATIVE)
    return next((kind for kind, pattern in _COMPILED if pattern.search(bare)), None)


def computes(name: str) -> bool:
    """Whether a span's own time is work of its kind. That of scopes and of the autograd graph's nodes is overhead."""
    return name.startswith(("aten::", NATIVE, "c10d", "gloo", "nccl")) or name in _SCOPES
