"""The command of a run as it is recorded: values that may hold secrets are left out, their names stay."""

from collections.abc import Mapping, Sequence
from typing import Any

from phalanx.config.resolve import SECRET

MASK = "***"
_FLAGS = ("--env", "--notify")  # a variable may be a token; so may a part of an address


def masked_words(words: Sequence[str]) -> list[str]:
    """A command line."""
    found: list[str] = []
    for word in words:
        flag, equals, value = word.partition("=")
        if found and found[-1] in _FLAGS:
            found.append(_masked(found[-1], word))
        elif flag in _FLAGS and equals:
            found.append(f"{flag}={_masked(flag, value)}")
        elif equals and (flag.strip() == SECRET or (flag.strip() == "log" and "notify" in value)):
            found.append(f"{flag}={MASK}")  # a setting's key may have spaces around it
        else:
            found.append(word)
    return found


def _masked(flag: str, value: str) -> str:
    name, equals, _ = value.partition("=")
    return f"{name}={MASK}" if flag == "--env" and equals else MASK


def masked_arguments(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a call of `train` or `launch`."""
    return {name: _masked_setting(name, value) for name, value in arguments.items()}


def _masked_setting(name: str, value: Any) -> Any:
    if name in ("notify", SECRET):
        return None if value is None else MASK
    if name == "log" and isinstance(value, Mapping):
        return {key: MASK if key == "notify" else inner for key, inner in value.items()}
    if name == "settings" and isinstance(value, Mapping):
        return {key: _masked_setting(str(key), inner) for key, inner in value.items()}
    return value
