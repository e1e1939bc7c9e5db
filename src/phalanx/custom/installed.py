"""The user's code in this process: modules are imported from texts, never from files that may have changed."""

import importlib
import linecache
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

from phalanx.custom.code import CodeFile
from phalanx.errors import UserError

FOLDER = "code"  # in the run's folder; `code/nets.py:TinyNet` names what is there
_DIGEST = "__phalanx_digest__"  # an attribute of modules that were imported from a text


class _Code(MetaPathFinder):
    """Finds the modules of the code that this process has."""

    def __init__(self) -> None:
        self.files: dict[str, CodeFile] = {}  # by module
        self.packages: set[str] = set()  # folders of installed packages that hold the user's code
        self.importing = 0

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        file = self.files.get(fullname)
        if file is not None:
            spec = ModuleSpec(fullname, _TextLoader(file), origin=file.origin, is_package=file.is_package)
            spec.has_location = True
            return spec
        if any(name.startswith(f"{fullname}.") for name in self.files):  # a folder without __init__.py
            return ModuleSpec(fullname, None, is_package=True)
        return None


class _TextLoader(Loader):
    """Makes a module from its text. Tracebacks show its lines under the path where the user has them."""

    def __init__(self, file: CodeFile) -> None:
        self._file = file

    def exec_module(self, module: ModuleType) -> None:
        file = self._file
        lines = file.text.splitlines(keepends=True)
        linecache.cache[file.origin] = (len(file.text), None, lines, file.origin)  # None: never read again
        setattr(module, _DIGEST, file.digest)
        exec(compile(file.text, file.origin, "exec"), module.__dict__)

    def get_source(self, fullname: str) -> str:
        return self._file.text


_CODE = _Code()


def install(files: Iterable[CodeFile]) -> None:
    """Have this process import these files, and no others that were installed before."""
    _CODE.packages.clear()
    _set(files)


def _set(files: Iterable[CodeFile]) -> None:
    _CODE.files = {file.module: file for file in files}
    if _CODE not in sys.meta_path:
        sys.meta_path.insert(0, _CODE)
    for name, module in list(sys.modules.items()):
        digest = getattr(module, "__dict__", {}).get(_DIGEST)
        if digest is not None and (name not in _CODE.files or _CODE.files[name].digest != digest):
            del sys.modules[name]


def installed() -> tuple[CodeFile, ...]:
    """The files that this process imports from."""
    return tuple(_CODE.files.values())


def note_package(path: Path) -> None:
    """Count the files beside this one, of an installed package, as the user's code."""
    _CODE.packages.add(str(path.parent))


def is_users(path: str) -> bool:
    """Whether a file that a traceback names is the user's code."""
    return str(Path(path).parent) in _CODE.packages or any(file.origin == path for file in _CODE.files.values())


def add(files: Iterable[CodeFile]) -> None:
    """Install further files. Two different ones of one name are refused."""
    _set(merged([*installed(), *files]))


def merged(files: Iterable[CodeFile]) -> list[CodeFile]:
    """Each file once. The names of all must differ, because they share one folder and one set of modules."""
    by_name: dict[str, CodeFile] = {}
    for file in files:
        known = by_name.setdefault(file.name, file)
        if known.text != file.text:
            raise UserError(
                f"two files of this run's code are named {file.name}",
                why=f"{known.origin} and {file.origin} differ, and a module has one name",
                remedy="rename one of them",
            )
    return list(by_name.values())


def is_importing() -> bool:
    """Whether the user's code is being imported just now: a script must not start a run when it is."""
    return _CODE.importing > 0


def import_code(module: str) -> ModuleType:
    """Import a module of this process's code, or of an installed package. Raises whatever its code raises."""
    known = sys.modules.get(module)
    if known is not None and (module not in _CODE.files or _DIGEST in known.__dict__):
        return known
    with _own_modules():
        _CODE.importing += 1
        try:
            return importlib.import_module(module)
        finally:
            _CODE.importing -= 1


@contextmanager
def _own_modules() -> Iterator[None]:
    """While the code is imported, modules of the same names that the user has imported himself are out of the way."""
    tops = {name.split(".")[0] for name in _CODE.files}
    others = {
        name: module
        for name, module in sys.modules.items()
        if name.split(".")[0] in tops and _DIGEST not in getattr(module, "__dict__", {})
    }
    for name in others:
        del sys.modules[name]
    try:
        yield
    finally:
        sys.modules.update(others)
