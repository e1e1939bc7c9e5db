"""Imports point one way: each layer imports itself and the layers below it, never one above."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import phalanx

SOURCE = Path(phalanx.__file__).parent
# From the top to the bottom. A package may import what is below it; those in one line may not import one another.
LAYERS = (
    ("__main__",),
    ("cli",),
    ("api",),
    ("bench", "commands", "plan"),
    ("launch",),
    ("roles",),
    ("engine",),
    ("exchange",),
    ("data",),
    ("cpu",),
    ("models",),
    ("optim",),
    ("board",),  # above nothing that trains: it meets training through files
    ("observe",),
    ("runs",),
    ("machine",),
    ("net",),
    ("native",),
    ("config",),
    ("custom",),
    ("migrate",),
    ("atomic", "errors", "scopes", "signals"),
)
LEVEL = {name: len(LAYERS) - number for number, layer in enumerate(LAYERS) for name in layer}


def imports(tree: ast.AST) -> Iterator[str]:
    """Every module that is imported, wherever in the file, also for types alone."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module == "phalanx":
            yield from (f"phalanx.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


def upward(package: str, tree: ast.AST) -> list[str]:
    """What is imported from above, or from beside."""
    names = [name.split(".")[1] for name in imports(tree) if name.startswith("phalanx.")]
    return sorted({name for name in names if name in LEVEL and name != package and LEVEL[name] >= LEVEL[package]})


def test_every_package_has_a_layer() -> None:
    found = {path.stem for path in SOURCE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert found - {"__init__"} == set(LEVEL)


@pytest.mark.parametrize("package", sorted(LEVEL))
def test_imports_point_down(package: str) -> None:
    files = [SOURCE / f"{package}.py", *(SOURCE / package).rglob("*.py")]
    for path in filter(Path.exists, files):
        found = upward(package, ast.parse(path.read_text(encoding="utf-8")))
        assert not found, f"{path.relative_to(SOURCE)} is a part of {package}, and imports {', '.join(found)}"


def inside_cpu(tree: ast.AST) -> list[str]:
    """Modules inside of phalanx.cpu that are imported; the package itself is the interface."""
    names = {*imports(tree)}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "phalanx.cpu":
            names |= {f"phalanx.cpu.{alias.name}" for alias in node.names}
    modules = {f"phalanx.cpu.{path.stem}" for path in (SOURCE / "cpu").glob("*.py")}
    return sorted(names & modules)


def test_the_rest_uses_the_interface_of_cpu_alone() -> None:
    for path in SOURCE.rglob("*.py"):
        if SOURCE / "cpu" not in path.parents:
            found = inside_cpu(ast.parse(path.read_text(encoding="utf-8")))
            assert not found, f"{path.relative_to(SOURCE)} imports {', '.join(found)}: use phalanx.cpu's functions"
    assert inside_cpu(ast.parse("from phalanx.cpu import load, tuning\nimport phalanx.cpu.fusion")) == [
        "phalanx.cpu.fusion",
        "phalanx.cpu.tuning",
    ]


def test_an_import_from_above_is_found() -> None:
    assert upward(
        "data", ast.parse("def f():\n    from phalanx.engine.loop import train\nimport phalanx.launch.job")
    ) == [
        "engine",
        "launch",
    ]
    assert upward("data", ast.parse("from phalanx.config.schema import DataConfig\nfrom phalanx import errors")) == []
