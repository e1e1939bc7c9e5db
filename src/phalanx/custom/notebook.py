"""A definition in a notebook as a Python file: its cell's text, and the imports and definitions that it uses."""

import ast
import hashlib
import tempfile
from collections.abc import Sequence
from pathlib import Path

from phalanx.errors import UserError

_DEFINES = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Assign, ast.AnnAssign)


def write_cells(cells: Sequence[str], name: str) -> Path:
    """A file with the definition of `name`. The same text has the same path, and another text another one."""
    text = definition(cells, name.split(".")[0])
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    folder = Path(tempfile.gettempdir()) / "phalanx-notebooks" / digest
    path = folder / f"notebook_{digest[:8]}.py"  # two definitions of a notebook may be used in one run
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(
            f"the source of {name} cannot be written to {path}",
            why=error.strerror or str(error),
            remedy="write it into a file of your own, and name it file.py:Name",
        ) from error
    return path


def definition(cells: Sequence[str], name: str) -> str:
    """The statements of the notebook that define `name` and all that it needs, the latest of each name."""
    statements = [statement for cell in cells for statement in _statements(cell)]
    latest = {defined: number for number, (node, _) in enumerate(statements) for defined in _defined(node)}
    if name not in latest:
        raise UserError(
            f"the source of {name} is not among this notebook's cells",
            why="it is found only where a cell that was run defines it",
            remedy="run its cell again, or write it into a file and name it file.py:Name",
        )
    ordered: list[int] = []
    seen: set[int] = set()

    def take(number: int) -> None:
        """First what a statement uses, then the statement: cells may have been run in any order."""
        if number in seen:
            return
        seen.add(number)
        used = {node.id for node in ast.walk(statements[number][0]) if isinstance(node, ast.Name)}
        for needed in sorted(latest[other] for other in used if other in latest):
            take(needed)
        ordered.append(number)

    take(latest[name])
    return "\n\n".join(statements[number][1] for number in ordered) + "\n"


def _statements(cell: str) -> list[tuple[ast.stmt, str]]:
    """The definitions of a cell, each with its text. Lines for IPython (%magic, !shell) are left out."""
    lines = ["" if line.lstrip().startswith(("%", "!")) else line for line in cell.splitlines()]
    try:
        body = ast.parse("\n".join(lines)).body
    except SyntaxError:
        return []
    found: list[tuple[ast.stmt, str]] = []
    for node in body:
        if isinstance(node, _DEFINES):
            first = min([node.lineno, *(one.lineno for one in getattr(node, "decorator_list", []))])
            found.append((node, "\n".join(lines[first - 1 : node.end_lineno])))
    return found


def _defined(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.Import | ast.ImportFrom):
        return [alias.asname or alias.name.split(".")[0] for alias in node.names]
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return [inner.id for target in targets for inner in ast.walk(target) if isinstance(inner, ast.Name)]
