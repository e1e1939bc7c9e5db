"""Making an object from the user's class or function: its options, and what it takes of what we offer."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from phalanx.custom.blame import user_code
from phalanx.custom.call import arguments
from phalanx.errors import UserError


def construct(
    value: Callable[..., Any], name: str, setting: str, offered: Mapping[str, Any], options: Mapping[str, Any]
) -> Any:
    """Call a class or function with its options, and with those offered arguments that its signature names."""
    given = arguments(value, name, setting, offered, options)
    try:
        inspect.signature(value).bind(**given)
    except TypeError as error:
        raise UserError(
            f"{name} cannot be called: {error}",
            why=f"it would be called with {', '.join(given) or 'no arguments'}",
            remedy=f"give it in options, or a default in the code; its parameters are {_listed(value)}",
        ) from error
    except ValueError:  # written in C, without a signature
        pass
    with user_code():
        return value(**given)


def parameters_of(value: Callable[..., Any]) -> tuple[str, ...]:
    """The names of a callable's parameters; none where it does not say."""
    try:
        return tuple(inspect.signature(value).parameters)
    except (TypeError, ValueError):
        return ()


def _listed(value: Callable[..., Any]) -> str:
    return ", ".join(parameters_of(value)) or "none"
