"""The configuration of a run: each setting, where its value came from, and what another run has."""

from functools import cache
from typing import Any

import yaml

from phalanx.board.places import Place
from phalanx.board.rows import LARGEST_CONFIG
from phalanx.config.recipes import load_recipe, recipe_names
from phalanx.config.resolve import describe, flatten, resolve, setting_keys
from phalanx.config.text import read_yaml
from phalanx.errors import UserError
from phalanx.observe.history import History
from phalanx.runs.folder import ORIGINS_FILE
from phalanx.runs.inside import json_inside, read_inside


def settings_of(place: Place, history: History, other: Place | None = None) -> dict[str, Any]:
    """Every setting with its origin; with `other`, that run's value beside it."""
    try:
        values = _values(place)
    except ValueError as error:
        return {"problem": str(error), "rows": []}
    beside: dict[str, Any] = {}
    problem = ""
    if other is not None:
        try:
            beside = _values(other)
        except ValueError as error:
            problem = f"{other.name}: {error}"
    with history.lock:
        history.refresh()
        start = history.start()
    decided = start.get("decisions", {})
    given, defaults, recipe = _origins(place), _defaults(), _recipe(values)
    order = {key: number for number, key in enumerate(setting_keys())}
    rows = []
    for key in sorted({*values, *beside}, key=lambda key: (order.get(key, len(order)), key)):
        value = values.get(key)
        row = {"key": key, "value": value, "meaning": describe(key)}
        row["origin"] = given.get(key) or _guess(key, value, defaults, recipe)
        row["decision"] = decided.get(key.rpartition(".")[2])
        row["is_default"] = key in defaults and defaults[key] == value
        if other is not None:
            row["other"] = beside.get(key)
            row["differs"] = beside.get(key) != value
        rows.append(row)
    return {"problem": problem, "rows": rows, "command": start.get("command"), "decisions": decided}


def _values(place: Place) -> dict[str, Any]:
    """The settings by dotted key, not validated. ValueError where they cannot be read."""
    try:
        tree = read_yaml(read_inside(place.path, "config.yaml", LARGEST_CONFIG).decode())
    except FileNotFoundError:
        raise ValueError("it has no config.yaml") from None
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ValueError(f"its config.yaml cannot be read: {str(error).partition(chr(10))[0]}") from error
    if not isinstance(tree, dict):
        raise ValueError("its config.yaml holds no settings")
    return {str(key): _plain(value) for key, value in flatten({str(key): tree[key] for key in tree}).items()}


def _plain(value: Any) -> Any:
    """A value that JSON can carry: YAML has dates and sets too."""
    if isinstance(value, list):
        return [_plain(one) for one in value]
    if isinstance(value, dict):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, float) and value != value:
        return "nan"
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def _origins(place: Place) -> dict[str, str]:
    try:
        found = json_inside(place.path, ORIGINS_FILE) or {}
    except ValueError:
        return {}
    return {key: origin for key, origin in found.items() if isinstance(origin, str)}


@cache
def _defaults() -> dict[str, Any]:
    return flatten(resolve([]).config.model_dump(mode="json"))


def _recipe(values: dict[str, Any]) -> dict[str, Any]:
    """What our recipe of that name says today. A file of that name is not read: the run may be somebody else's."""
    name = values.get("name")
    return _settings_of_recipe(name) if name in recipe_names() else {}


@cache
def _settings_of_recipe(name: str) -> dict[str, Any]:
    try:
        return flatten(resolve(load_recipe(name).layers).config.model_dump(mode="json"))
    except (UserError, OSError, ValueError):
        return {}


def _guess(key: str, value: Any, defaults: dict[str, Any], recipe: dict[str, Any]) -> str:
    """For runs of before origins were kept."""
    if key in defaults and defaults[key] == value:
        return "default"
    return "as in the recipe" if key in recipe and recipe[key] == value else "given, or chosen at the start"
