"""From a Python object (a class, a function) to a reference that other processes can load."""

import inspect
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from phalanx.custom.code import is_installed
from phalanx.custom.installed import installed
from phalanx.custom.notebook import write_cells
from phalanx.custom.reference import is_reference
from phalanx.errors import UserError


def reference_of(value: object) -> str:
    """The reference of a class or function: `package.module:name` if it is installed, else `/path/file.py:Name`."""
    if isinstance(value, str):
        if not is_reference(value):
            raise UserError(f"{value!r} does not name Python code", remedy="write it as file.py:Name")
        return value
    if not (inspect.isclass(value) or inspect.isfunction(value) or inspect.isbuiltin(value)):
        kind = type(value).__name__
        raise UserError(
            f"a {kind} object cannot be sent to the processes of a job",
            why="each process makes its own, from code",
            remedy=f"pass the class, or a function that returns the {kind}; its arguments go into `options`",
        )
    name, module = value.__qualname__, sys.modules.get(value.__module__ or "")
    if "<" in name or module is None:  # <locals>, <lambda>
        raise UserError(
            f"{name} cannot be found by name",
            why="it is defined inside a function, or is a lambda, so no other process can import it",
            remedy="define it at the top level of a file",
        )
    for file in installed():
        if file.module == module.__name__ and getattr(module, "__file__", None) == file.origin:
            return f"{file.origin}:{name}"
    path = getattr(module, "__file__", None)
    if path is None:
        return _of_cells(value, module, name)
    return f"{module.__name__}:{name}" if is_installed(Path(path)) else f"{Path(path).resolve()}:{name}"


def _of_cells(value: Any, module: ModuleType, name: str) -> str:
    """Of something without a file: a notebook's cells, whose text IPython keeps."""
    cells = module.__dict__.get("In")
    if module.__name__ != "__main__" or not isinstance(cells, list):
        raise UserError(
            f"the source of {name} cannot be found",
            why=f"its module {module.__name__} has no file" + (": it was typed in" if sys.argv[:1] == [""] else ""),
            remedy="write it into a file, and name it file.py:Name",
        )
    return f"{write_cells([str(cell) for cell in cells], name)}:{name}"
