"""From Python arguments to settings: paths, lists and numbers become what a recipe can hold."""

import inspect
from collections.abc import Callable, Mapping
from functools import wraps
from numbers import Integral, Real
from os import PathLike, fspath
from typing import Any, ParamSpec, TypeVar

from phalanx.api.masking import masked_arguments
from phalanx.config.flags import FLAGS
from phalanx.config.resolve import Layer, nest
from phalanx.errors import UserError, nearest

P = ParamSpec("P")
R = TypeVar("R")
_COMMA_SEPARATED = ("gpus", "lr_step_epochs", "data_service", "teacher_service", "log")  # flags that take a list


def refuse_unknown(function: Callable[P, R]) -> Callable[P, R]:
    """Refuse an unknown keyword argument with an Error that names the nearest ones, instead of a TypeError."""
    known = [
        *(name for name, kind in inspect.signature(function).parameters.items() if kind.kind is not kind.VAR_KEYWORD),
        *(FLAGS if _takes_flags(function) else ()),
    ]

    @wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        for name in kwargs:
            if name not in known:
                raise UserError(
                    f"{function.__name__}() has no argument {name!r}",
                    why="its arguments are the flags of `phalanx train`, with _ for -; all else goes into settings=",
                    remedy=nearest(name, known),
                )
        return function(*args, **kwargs)

    return checked


def _takes_flags(function: Callable[..., Any]) -> bool:
    """Whether the flags of `train` come as keyword arguments (Unpack[TrainFlags])."""
    return any(one.kind is one.VAR_KEYWORD for one in inspect.signature(function).parameters.values())


def given_flags(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The flags among the arguments of a function, as the command line would give them. None means not given."""
    found = {}
    for name in FLAGS:
        value = arguments.get(name)
        if value is None:
            continue
        if name in _COMMA_SEPARATED and not isinstance(value, str):
            value = ",".join(str(one) for one in (value if isinstance(value, list | tuple) else [value]))
        found[name] = to_setting(value, name)
    return found


def settings_layers(settings: Mapping[str, Any] | None) -> list[Layer]:
    """A layer for each setting: {"optim.lr": 0.2} or {"optim": {"lr": 0.2}}."""
    if settings is not None and not isinstance(settings, Mapping):
        raise UserError(
            f"settings cannot be {settings!r}",
            why="settings are a dictionary",
            remedy='settings={"optim.lr": 0.2}',
        )
    return [
        Layer(f"settings {key!r}", nest(str(key), to_setting(value, key))) for key, value in (settings or {}).items()
    ]


def to_setting(value: Any, name: str) -> Any:
    """A value as a recipe would hold it. A class or a function becomes a reference to it."""
    if value is None or isinstance(value, str | bool):
        return value
    if isinstance(value, PathLike):
        return fspath(value)
    if isinstance(value, Integral):  # numpy's numbers too
        return int(value)
    if isinstance(value, Real):
        return float(value)
    if isinstance(value, Mapping):
        return {str(key): to_setting(inner, f"{name}.{key}") for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [to_setting(inner, name) for inner in value]
    return reference(value)


def reference(value: object) -> str:
    """The text that stands for the user's own class or function in a configuration, such as nets.py:TinyNet."""
    from phalanx.custom import reference_of

    return reference_of(value)


def call_text(function: str, recipe: object, arguments: Mapping[str, Any]) -> str:
    """The call as it could be written, for the record of a run."""
    words = [] if recipe is None else [repr(recipe)]
    words += [
        f"{name}={to_setting(value, name)!r}"
        for name, value in masked_arguments(arguments).items()
        if value is not None
    ]
    return f"phalanx.{function}({', '.join(words)})"
