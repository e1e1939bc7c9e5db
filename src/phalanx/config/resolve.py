"""Merges layers of settings: defaults, recipes, flags, overrides. Each value keeps its origin."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, get_args

import yaml
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from phalanx.config.schema import MachineConfig, RunConfig
from phalanx.config.text import read_yaml
from phalanx.errors import UserError, nearest

Tree = dict[str, Any]
DEFAULT = "default"
SECRET = "log.notify"  # a setting whose value may be one: a part of an address is


@dataclass(frozen=True)
class Layer:
    """Settings from one source; `origin` is its name for the user."""

    origin: str
    values: Tree


@dataclass(frozen=True)
class Resolved:
    """A validated configuration, and where each of its values came from (by dotted key)."""

    config: RunConfig
    origins: dict[str, str]

    def with_machine(self, machine: MachineConfig) -> "Resolved":
        """The same with resolved machine settings, without `auto`."""
        return replace(self, config=self.config.model_copy(update={"machine": machine}))

    def with_config(self, config: RunConfig) -> "Resolved":
        """The same origins with another configuration."""
        return replace(self, config=config)

    def rows(self) -> Iterator[tuple[str, Any, str]]:
        """Every setting as (dotted key, value, origin), in the schema's order."""
        values = flatten(self.config.model_dump(mode="json"))
        for key in setting_keys():
            yield key, values.get(key, {}), self.origins.get(key, DEFAULT)


def setting_keys() -> list[str]:
    """The dotted names of all settings, in the schema's order."""
    return [key for key, _ in _fields(RunConfig, "")]


def describe(key: str) -> str:
    """What a setting means, from the schema."""
    return next((field.description or "" for name, field in _fields(RunConfig, "") if name == key), "")


def _fields(model: type[BaseModel], prefix: str) -> Iterator[tuple[str, FieldInfo]]:
    for name, field in model.model_fields.items():
        section = _section(field)
        if section is None:
            yield prefix + name, field
        else:
            yield from _fields(section, f"{prefix}{name}.")


def _section(field: FieldInfo) -> type[BaseModel] | None:
    for kind in (field.annotation, *get_args(field.annotation)):
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            return kind
    return None


def flatten(tree: Tree) -> Tree:
    """Nested settings by dotted key; a free-form dictionary (such as model.options) stays whole."""
    known = set(setting_keys())

    def walk(node: Tree, prefix: str) -> Iterator[tuple[str, Any]]:
        for name, value in node.items():
            key = f"{prefix}{name}"
            if isinstance(value, dict) and key not in known:
                yield from walk(value, key + ".")
            else:
                yield key, value

    return dict(walk(tree, ""))


def nest(key: str, value: Any) -> Tree:
    """`optim.lr`, 0.2 → {"optim": {"lr": 0.2}}."""
    tree: Any = value
    for part in reversed(key.split(".")):
        tree = {part: tree}
    return dict(tree)


def parse_override(text: str) -> Layer:
    """`optim.lr=0.2`, as typed on the command line. The value is read as YAML."""
    key, equals, value = text.partition("=")
    key = key.strip()
    if not equals or not key:
        raise UserError(
            f"{text!r} is not a setting",
            why="after the recipe, settings are written key=value",
            remedy="for example optim.lr=0.2; `phalanx recipes digits` lists every key",
        )
    try:
        parsed = read_yaml(value) if value.strip() else None
    except yaml.YAMLError as error:
        raise UserError(
            f"the value of {key} cannot be read: {value!r}",
            why=str(error).replace("\n", " "),
            remedy="quote it as YAML, for example name='\"a: b\"'",
        ) from error
    secret = key == SECRET or (key == "log" and "notify" in value)  # its origin is kept beside the settings
    return Layer(key if secret else f"{key}={value}", nest(key, parsed))


def resolve(layers: Sequence[Layer]) -> Resolved:
    """Merge the layers over the defaults, later ones on top, and validate the result."""
    merged: Tree = {}
    origins: dict[str, str] = {}
    known = setting_keys()
    for layer in layers:
        for key, value in flatten(layer.values).items():
            owner = _owner(key, known)
            if owner is None:
                _refuse_unknown(key, value, layer.origin, known)
            else:
                origins[owner] = layer.origin
        _merge(merged, layer.values)
    try:
        return Resolved(RunConfig.model_validate(merged), origins)
    except ValidationError as error:
        raise _explain(error, origins) from error


def merge_layers(layers: Sequence[Layer]) -> Tree:
    """Layers merged into one tree of settings, not validated: a recipe without ancestors."""
    merged: Tree = {}
    for layer in layers:
        _merge(merged, layer.values)
    return merged


def _owner(key: str, known: Sequence[str]) -> str | None:
    """The setting a dotted key belongs to: itself, or the free-form dictionary around it."""
    if key in known:
        return key
    return next((name for name in known if name.endswith(".options") and key.startswith(name + ".")), None)


def _refuse_unknown(key: str, value: Any, origin: str, known: Sequence[str]) -> None:
    from phalanx.migrate.refuse import setting_remedy

    if there := setting_remedy(key, value):
        raise UserError(f"there is no setting {key!r}", why=f"given by {origin}", remedy=there)
    sections = sorted({name.split(".")[0] for name in known})
    if key in sections:
        inside = [name for name in known if name.startswith(key + ".")]
        raise UserError(
            f"{key} is a section, not a setting",
            why=f"given by {origin}",
            remedy=f"name one of its settings: {', '.join(inside[:6])} …",
        )
    leaf = key.rsplit(".", 1)[-1]
    same_leaf = [name for name in known if name.rsplit(".", 1)[-1] == leaf]
    hint = f"did you mean {', '.join(same_leaf)}?" if same_leaf else nearest(key, known)
    raise UserError(
        f"there is no setting {key!r}", why=f"given by {origin}", remedy=f"{hint} (`phalanx recipes digits` lists all)"
    )


def _merge(into: Tree, tree: Tree) -> None:
    for name, value in tree.items():
        if isinstance(value, dict) and isinstance(into.get(name), dict):
            _merge(into[name], value)
        elif isinstance(value, dict):
            into[name] = {}
            _merge(into[name], value)
        else:
            into[name] = value


def _explain(error: ValidationError, origins: dict[str, str]) -> UserError:
    """pydantic's findings as one message: each wrong value with its key, its origin and what would be right."""
    found: dict[str, list[str]] = {}
    given: dict[str, Any] = {}
    for item in error.errors(include_url=False):
        names = [str(part) for part in item["loc"]]
        key = next((".".join(names[:n]) for n in range(len(names), 0, -1) if ".".join(names[:n]) in origins), "")
        key = key or ".".join(names)
        found.setdefault(key, []).append(item["msg"].removeprefix("Value error, "))
        given[key] = item["input"]
    key = next(iter(found))
    if isinstance(given[key], dict):  # each setting alone is valid
        return _contradiction("; ".join(dict.fromkeys(found[key])), origins)
    others = f" (and {len(found) - 1} more: {', '.join(list(found)[1:])})" if len(found) > 1 else ""
    meaning = describe(key)
    return UserError(
        f"{key} cannot be {given[key]!r}: {'; or '.join(dict.fromkeys(found[key]))}{others}",
        why=f"given by {origins.get(key, DEFAULT)}",
        remedy=f"{key}: {meaning}" if meaning else f"see `phalanx recipes` for a working value of {key}",
    )


def _contradiction(message: str, origins: dict[str, str]) -> UserError:
    """An error about contradicting settings, which the schema's message names."""
    named = [key for key in origins if "." in key and key in message]
    return UserError(
        message,
        why=f"given by {', '.join(dict.fromkeys(origins[key] for key in named)) or DEFAULT}",
        remedy="; ".join(f"{key}: {text}" for key in named if (text := describe(key)))
        or "`phalanx recipes` shows settings that work",
    )
