"""Which of a model's parameters escape weight decay, and which make up its classifier."""

from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase
from typing import Any

from torch import nn


def no_decay_names(model: nn.Module) -> set[str]:
    """Names of the parameters that weight decay should spare: norms, biases, and what the model itself names."""
    # timm's models may name position embeddings and the like, some of them as globs
    ask: Callable[[], Iterable[str]] = getattr(model, "no_weight_decay", set)
    spared = list(ask())
    return {
        name
        for name, parameter in model.named_parameters()
        if parameter.ndim <= 1 or name.endswith(".bias") or any(fnmatchcase(name, pattern) for pattern in spared)
    }


def classifier_names(model: nn.Module) -> set[str]:
    """Names in the state dict that belong to the classifier, what a model for other classes would have anew."""
    ask: Callable[[], Any] = getattr(model, "get_classifier", list)
    found = ask()
    # a distilled model has two classifiers, and timm gives both
    heads = [head for head in (found if isinstance(found, tuple | list) else [found]) if isinstance(head, nn.Module)]
    prefixes = [f"{name}." for name, module in model.named_modules() if any(module is head for head in heads)]
    return {name for name in model.state_dict() if name.startswith(tuple(prefixes))}
