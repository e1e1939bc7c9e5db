"""`phalanx recipes`: lists recipes with their claims, and the origin of each value."""

import json

from rich.console import Console
from rich.text import Text

from phalanx.config.recipes import CLAIM_PARTS, load_recipe, recipe_names
from phalanx.config.resolve import describe, resolve
from phalanx.observe.tables import print_line, print_table


def list_recipes(console: Console) -> None:
    """Every built-in recipe with its claim."""
    for name in recipe_names():
        console.print(Text(name, style="bold"))
        claim = load_recipe(name).claim
        for part in CLAIM_PARTS:
            if part in claim:
                console.print(Text(f"  {part}: {claim[part]}"), soft_wrap=True)
    console.print(Text("\n`phalanx recipes NAME` prints one resolved, with where each value came from"))


def show_recipe(console: Console, name: str) -> None:
    """One resolved recipe: its claim, its comments, and every setting with its origin and meaning."""
    recipe = load_recipe(name)
    for part, said in recipe.claim.items():
        console.print(Text(f"# {part}: {said}"), soft_wrap=True)
    for comment in recipe.comments:
        console.print(Text(comment), soft_wrap=True)
    rows = [(key, json.dumps(value), origin) for key, value, origin in resolve(recipe.layers).rows()]
    if console.is_terminal:
        titles = ("setting", "value", "from", "meaning")
        print_table(console, titles, [(*row, describe(row[0])) for row in rows], asides=("from", "meaning"))
        return
    for key, value, origin in rows:
        print_line(console, f"{key}={value}\t# {origin}")
