"""Inside of data/, imports point one way as well: from files to batches, and never back."""

import ast
from pathlib import Path

import pytest

import phalanx.data
from tests.test_imports import imports

DATA = Path(phalanx.data.__file__).parent
# From the top to the bottom. Each imports itself and what is below it.
LAYERS = (
    ("training",),
    ("service", "pack", "unlabeled"),
    ("duplicates", "pipeline"),
    ("augment", "sources"),
    ("decode",),
    ("base", "sampling"),
    ("order", "gpu_copies"),
    ("random",),
)
LEVEL = {name: len(LAYERS) - number for number, layer in enumerate(LAYERS) for name in layer}
# Of data/sources, only these know that there are shards; shards/ itself may use the rest.
KNOW_SHARDS = {"formats.py", "quarantine.py"}


def test_every_module_has_a_layer() -> None:
    found = {path.stem for path in DATA.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert found - {"__init__"} == set(LEVEL)


@pytest.mark.parametrize("part", sorted(LEVEL))
def test_imports_point_down(part: str) -> None:
    for path in filter(Path.exists, [DATA / f"{part}.py", *(DATA / part).rglob("*.py")]):
        names = {name.split(".")[2] for name in imports(_tree(path)) if name.startswith("phalanx.data.")}
        above = [name for name in names if name != part and LEVEL[name] >= LEVEL[part]]
        assert not above, f"{path.relative_to(DATA)} imports {', '.join(above)}"


def test_only_the_table_of_formats_knows_the_shards() -> None:
    for path in (DATA / "sources").glob("*.py"):
        knows = any(name.startswith("phalanx.data.sources.shards") for name in imports(_tree(path)))
        assert not knows or path.name in KNOW_SHARDS, path.name


def _tree(path: Path) -> ast.AST:
    return ast.parse(path.read_text(encoding="utf-8"))
