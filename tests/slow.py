"""Which tests are slow: those that start processes, train, or build large models. `./check --fast` leaves them out.

Nobody lists them: it follows from what a test imports, directly or by a helper module of the tests, and from its
fixtures. A single slow test elsewhere has `@pytest.mark.slow`.
"""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SLOW_IMPORTS = (
    *("subprocess", "multiprocessing", "tests.processes", "tests.lab", "tests.warm"),
    *("phalanx.bench", "phalanx.roles.run", "phalanx.roles.trainer", "phalanx.launch.process_manager"),
    *("tests.conftest.train_digits", "tests.launch.launchers", "phalanx.models.build"),
)
SLOW_FIXTURES = frozenset({"digits_run", "timm_run", "lab"})


def mark_slow(items: list[pytest.Item]) -> None:
    for item in items:
        if is_slow(item.path) or SLOW_FIXTURES & set(getattr(item, "fixturenames", ())):
            item.add_marker("slow")


@cache
def is_slow(path: Path) -> bool:
    """Whether a test module, or a helper that it imports, imports something slow."""
    names = list(imports(path))
    if any(f"{name}.".startswith(f"{slow}.") for name in names for slow in SLOW_IMPORTS):
        return True
    helpers = {ROOT / f"{name.replace('.', '/')}.py" for name in names if name.startswith("tests.")}
    return any(is_slow(helper) for helper in helpers if helper.exists() and helper.name != "conftest.py")


def imports(path: Path) -> Iterator[str]:
    """Full names of what a module imports, inside of functions too."""
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
