"""Calling the user's classes and functions with what their signatures take."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from phalanx.custom.load import load
from phalanx.errors import UserError, nearest


def arguments(
    make: Callable[..., Any], name: str, setting: str, offered: Mapping[str, Any], required: Mapping[str, Any]
) -> dict[str, Any]:
    """What to call `make` with: of `offered` what its signature takes; all of `required`, or it is refused."""
    try:
        parameters = inspect.signature(make).parameters
    except (TypeError, ValueError):  # not written in Python
        return dict(required)
    named = {key for key, one in parameters.items() if one.kind in (one.KEYWORD_ONLY, one.POSITIONAL_OR_KEYWORD)}
    takes_any = any(one.kind is one.VAR_KEYWORD for one in parameters.values())
    for key in required:
        if key not in named and not takes_any:
            raise UserError(
                f"{name} does not take {key}",
                why=f"given by {setting}.{key}",
                remedy=nearest(key, sorted(named)) if named else f"leave {setting} out",
            )
    return {**{key: value for key, value in offered.items() if key in named or takes_any}, **required}


def not_taken(name: str, offered: Mapping[str, Any]) -> list[str]:
    """A note about offered settings that a class or function does not take, so that nobody believes that they count."""
    left_out = [key for key in offered if key not in arguments(load(name), name, "", offered, {})]
    return [f"{name} does not take {', '.join(left_out)}: not used"] if left_out else []
