"""Which parameters of a model have no weight decay, and which belong to its classifier."""

from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase

from torch import nn


def no_decay_names(model: nn.Module) -> set[str]:
    """Names of the parameters without weight decay: norms, biases, and those that the model names itself."""
    # timm's models may name position embeddings and the like, some of them as globs
    ask: Callable[[], Iterable[str]] = getattr(model, "no_weight_decay", set)
    exempt = list(ask())
    return {
        name
        for name, parameter in model.named_parameters()
        if parameter.ndim <= 1 or name.endswith(".bias") or any(fnmatchcase(name, pattern) for pattern in exempt)
    }


def classifier_names(model: nn.Module) -> set[str]:
    """Names in the state dict that belong to the classifier, which differs for other classes."""
    # timm's default_cfg: one name, or several for auxiliary or distillation classifiers
    described: str | Iterable[str] = getattr(model, "default_cfg", {"classifier": "fc"})["classifier"] or ()
    modules = [described] if isinstance(described, str) else described
    prefixes = tuple(f"{module}." for module in modules)
    return {name for name in model.state_dict() if name.startswith(prefixes)}
