"""`phalanx.recipe`: a recipe to look at, and to train."""

from html import escape
from os import PathLike, fspath
from typing import Any

from phalanx.config import recipes
from phalanx.config.resolve import DEFAULT, resolve


class Recipe:
    """A recipe: its claim, and every setting that it stands for.

    >>> recipe = phalanx.recipe("digits")
    >>> recipe.claim["command"]
    'phalanx train digits'
    >>> recipe.settings["train.batch_size"]
    64
    """

    def __init__(self, name: str | PathLike[str]) -> None:
        loaded = recipes.load_recipe(fspath(name))
        self.name = loaded.name
        self.claim = dict(loaded.claim)
        rows = list(resolve(loaded.layers).rows())
        self.settings: dict[str, Any] = {key: value for key, value, _ in rows}
        self.changed: dict[str, Any] = {key: value for key, value, origin in rows if origin != DEFAULT}

    def __repr__(self) -> str:
        """The claim, and the settings that are not defaults."""
        claim = [f"  {part}: {text}" for part, text in self.claim.items()]
        return "\n".join([f"Recipe {self.name!r}", *claim, *(f"  {key} = {value!r}" for key, value in self._shown())])

    def _repr_html_(self) -> str:
        rows = [*self.claim.items(), *((key, repr(value)) for key, value in self._shown())]
        cells = "".join(
            f"<tr><td style='text-align:left'>{escape(key)}</td><td style='text-align:left'>{escape(value)}</td></tr>"
            for key, value in rows
        )
        return f"<b>Recipe {escape(self.name)}</b><table>{cells}</table>"

    def _shown(self) -> list[tuple[str, Any]]:
        return [(key, value) for key, value in self.changed.items() if key != "name"]


def recipe(name: str | PathLike[str]) -> Recipe:
    """A recipe by name, or from a YAML file. `phalanx recipes` lists the names.

    >>> phalanx.recipe("digits").settings["model.name"]
    'cifar_resnet8'
    """
    return Recipe(name)
