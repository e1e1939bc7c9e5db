"""Making an object from the user's class or function: its options, and what it takes of what we offer."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from phalanx.custom.blame import user_code
from phalanx.errors import UserError


def construct(value: Callable[..., Any], options: Mapping[str, Any], offered: Mapping[str, Any], setting: str) -> Any:
    """Call a class or function with its options, and with those offered arguments that its signature names."""
    taken = parameters_of(value)
    arguments = {**{name: given for name, given in offered.items() if name in taken}, **options}
    _refuse_misfits(value, arguments, setting)
    with user_code():
        return value(**arguments)


def parameters_of(value: Callable[..., Any]) -> tuple[str, ...]:
    """The names of a callable's parameters; none where it does not say."""
    try:
        return tuple(inspect.signature(value).parameters)
    except (TypeError, ValueError):
        return ()


def _refuse_misfits(value: Callable[..., Any], arguments: Mapping[str, Any], setting: str) -> None:
    try:
        inspect.signature(value).bind(**arguments)
    except TypeError as error:
        name = getattr(value, "__name__", str(value))
        raise UserError(
            f"{setting}: {name} cannot be called: {error}",
            why=f"it would be called with {', '.join(arguments) or 'no arguments'}",
            remedy=f"give what it needs in options; its parameters are {', '.join(parameters_of(value)) or 'none'}",
        ) from error
    except ValueError:
        return  # written in C, without a signature
