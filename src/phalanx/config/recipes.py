"""Recipes: YAML files with a claim and settings. A recipe may extend another one."""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

import yaml

from phalanx.config.resolve import Layer, flatten
from phalanx.config.text import read_yaml
from phalanx.custom.reference import anchored
from phalanx.errors import UserError, nearest

CLAIM_PARTS = ("accuracy", "cost", "machine", "command")
_ENDINGS = (".yaml", ".yml")


@dataclass(frozen=True)
class Recipe:
    """A recipe with its ancestors' layers, oldest first, and its own claim."""

    name: str
    claim: dict[str, str]
    layers: list[Layer]
    comments: list[str]  # its own comment lines


def recipe_names() -> list[str]:
    """The recipes that come with Phalanx."""
    return sorted(
        entry.name.removesuffix(".yaml") for entry in _recipe_folder().iterdir() if entry.name.endswith(".yaml")
    )


def load_recipe(name: str) -> Recipe:
    """A recipe by name, or from a file: a name with .yaml or a slash is a path."""
    return _load(name, relative_to=None, seen=())


def default_recipe(given: Sequence[Layer]) -> str:
    """The recipe if none is named: digits, or one for photographs if the user names data."""
    sources = [flatten(layer.values).get("data.source") for layer in given]
    named = [source for source in sources if source is not None]
    return "digits" if not named or named[-1] == "digits" else "synthetic" if named[-1] == "synthetic" else "images"


def _recipe_folder() -> Traversable:
    return files("phalanx") / "recipes"


def _load(name: str, relative_to: Path | None, seen: tuple[str, ...]) -> Recipe:
    if name in seen:
        raise UserError(
            f"recipe {seen[0]} extends itself", why=" → ".join([*seen, name]), remedy="break the circle of `extends:`"
        )
    text, origin, folder = _text(name, relative_to)
    tree = _parse(text, origin)
    parent, claim = tree.pop("extends", None), tree.pop("claim", {})
    if parent is not None and not isinstance(parent, str):
        raise UserError(f"{origin}: extends must name one recipe", why=f"it is {parent!r}", remedy="extends: digits")
    if not isinstance(claim, dict):
        raise UserError(
            f"{origin}: claim must be a mapping", why=f"it is {claim!r}", remedy=f"give {', '.join(CLAIM_PARTS)}"
        )
    layers = _load(parent, folder, (*seen, name)).layers if parent else []
    tree.setdefault("name", Path(name).stem)
    claimed = {str(part): str(text) for part, text in claim.items()}
    comments = [line for line in text.splitlines() if line.startswith("#")]
    if folder is not None:
        tree = anchored(tree, folder)
    return Recipe(name, claimed, [*layers, Layer(origin, tree)], comments)


def _text(name: str, relative_to: Path | None) -> tuple[str, str, Path | None]:
    """The text of a recipe, its name for messages, and the folder for its `extends:`."""
    if name.endswith(_ENDINGS) or "/" in name:
        path = Path(name) if relative_to is None else relative_to / name
        try:
            return path.read_text(encoding="utf-8"), str(path), path.parent
        except UnicodeDecodeError as error:
            raise UserError(f"{path} is not a recipe", why="it is not UTF-8 text", remedy="give a YAML file") from error
        except (OSError, ValueError) as error:  # ValueError: a name that no file can have
            raise UserError(
                f"the recipe file {path} cannot be read",
                why=getattr(error, "strerror", None) or str(error),
                remedy="check the path, or name a built-in recipe: " + ", ".join(recipe_names()),
            ) from error
    if name not in recipe_names():
        raise UserError(
            f"there is no recipe {name!r}",
            why="a recipe is a built-in name or a path ending in .yaml",
            remedy=nearest(name, recipe_names()),
        )
    return (_recipe_folder() / f"{name}.yaml").read_text(encoding="utf-8"), f"recipe {name}", None


def _parse(text: str, origin: str) -> dict[str, Any]:
    try:
        tree = read_yaml(text)
    except yaml.YAMLError as error:
        raise UserError(
            f"{origin} is not valid YAML", why=str(error).replace("\n", " "), remedy="fix the line named above"
        ) from error
    if tree is None:
        return {}
    if not isinstance(tree, dict):
        raise UserError(
            f"{origin} is not a recipe", why="its top level is not a mapping", remedy="see `phalanx recipes digits`"
        )
    return tree
