"""The files behind a reference: the file itself, and the modules beside it that it imports."""

import ast
import hashlib
import site
import sysconfig
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from phalanx.errors import UserError

_MOST_BYTES = 8 << 20  # of code that travels with a job


@dataclass(frozen=True)
class CodeFile:
    """One file of the user's code, as it was when the job was started."""

    name: str  # below the folder that imports start from: nets.py, blocks/conv.py
    text: str
    origin: str  # the path where it was read

    @property
    def digest(self) -> str:
        """SHA-256 of the text."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    @property
    def module(self) -> str:
        """The module's name: nets, blocks.conv; blocks for blocks/__init__.py."""
        return self.name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")

    @property
    def is_package(self) -> bool:
        return self.name.endswith("/__init__.py")

    def to_data(self) -> dict[str, Any]:
        """As JSON, for the other processes of the job."""
        return {"name": self.name, "text": self.text, "origin": self.origin}

    @staticmethod
    def from_data(data: Mapping[str, Any]) -> "CodeFile":
        return CodeFile(data["name"], data["text"], data["origin"])


def root_of(path: Path) -> Path:
    """The folder that imports start from: the file's own, or the one around its outermost package."""
    folder = path.resolve().parent
    while (folder / "__init__.py").is_file():
        folder = folder.parent
    return folder


def read_file(path: Path, root: Path) -> CodeFile:
    """One file, which must be Python."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise UserError(
            f"there is no file {path}", why=f"seen from {Path.cwd()}", remedy="check the path before the colon"
        ) from error
    except (OSError, UnicodeDecodeError) as error:
        why = "it is not UTF-8 text" if isinstance(error, UnicodeDecodeError) else error.strerror or str(error)
        raise UserError(f"{path} cannot be read", why=why, remedy="give a Python file") from error
    origin = path.resolve()
    return CodeFile(origin.relative_to(root).as_posix(), text, str(origin))


def read_with_imports(path: Path) -> list[CodeFile]:
    """A file and what it imports from its own folder, directly or through others. The file itself comes first."""
    root = root_of(path)
    first = read_file(path, root)
    found = {first.name: first}
    waiting = [first]
    if "/" in first.name:  # a part of a package, which is imported as a whole
        waiting += _add(found, _package_files(root / first.name.split("/")[0]), root)
    while waiting:
        file = waiting.pop()
        for top in sorted(_imported(file)):
            waiting += _add(found, _module_files(root, top), root)
        _refuse_too_much(found.values(), path)
    return list(found.values())


def _add(found: dict[str, CodeFile], paths: Iterable[Path], root: Path) -> list[CodeFile]:
    new = [read_file(path, root) for path in paths if path.relative_to(root).as_posix() not in found]
    found.update({file.name: file for file in new})
    return new


def _imported(file: CodeFile) -> set[str]:
    """The top-level modules that a file imports, wherever in it."""
    names: set[str] = set()
    for node in ast.walk(parse_text(file)):
        if isinstance(node, ast.Import):
            names.update(alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.split(".")[0])
    return names


def parse_text(file: CodeFile) -> ast.Module:
    """The file's syntax tree."""
    try:
        return ast.parse(file.text, file.origin)
    except (SyntaxError, ValueError) as error:
        line = f", line {error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
        shown = (error.text or "").strip() if isinstance(error, SyntaxError) else ""
        raise UserError(
            f"{file.origin}{line}: {getattr(error, 'msg', error)}",
            why=f"the line is: {shown}" if shown else "the file is not valid Python",
            remedy=f"correct it; `python {file.origin}` shows the same error",
        ) from error


def _module_files(root: Path, top: str) -> Iterator[Path]:
    """The files of a top-level module, if it is one of this folder."""
    folder, file = root / top, root / f"{top}.py"
    if (folder / "__init__.py").is_file():
        yield from _package_files(folder)
    elif file.is_file():
        yield file
    elif any(folder.glob("*.py")) and not _elsewhere(top):  # a folder without __init__.py comes last, as in Python
        yield from _package_files(folder)


def _package_files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*.py") if not any(part.startswith(".") for part in path.parts[1:]))


def _elsewhere(top: str) -> bool:
    """Whether Python finds a module of this name that has a file."""
    try:
        spec = find_spec(top)
    except (ImportError, ValueError):
        return False
    return spec is not None and spec.origin is not None


def _refuse_too_much(files: Iterable[CodeFile], path: Path) -> None:
    total = sum(len(file.text) for file in files)
    if total > _MOST_BYTES:
        raise UserError(
            f"the code that {path} imports from its folder is too large: {total >> 20} MB",
            why=f"all of it is sent to every host of a job; at most {_MOST_BYTES >> 20} MB",
            remedy="install it as a package on all hosts, and name it package.module:name",
        )


def module_path(module: str) -> Path | None:
    """The file of a module that can be imported here, found without importing anything; else that in this folder."""
    top, *inner = module.split(".")
    try:
        spec = find_spec(top)
    except (ImportError, ValueError):
        spec = None
    roots = [Path(place).parent for place in spec.submodule_search_locations or ()] if spec else []
    if spec is not None and spec.origin is not None and not inner and spec.submodule_search_locations is None:
        return Path(spec.origin)
    for root in [*roots, Path.cwd()]:
        base = root.joinpath(top, *inner)
        for path in (base.with_name(f"{base.name}.py"), base / "__init__.py"):
            if path.is_file():
                return path
    return None


def is_installed(path: Path) -> bool:
    """Whether a file belongs to an installed package, which each host has by itself."""
    places = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    places += [*site.getsitepackages(), site.getusersitepackages()]
    parents = {str(parent) for parent in path.resolve().parents}
    if any(place and str(Path(place).resolve()) in parents for place in places):
        return True
    return any(parent.name in ("site-packages", "dist-packages") for parent in path.resolve().parents)


def digest_of(path: Path) -> str:
    """SHA-256 of a file's content."""
    return hashlib.sha256(path.read_bytes()).hexdigest()
