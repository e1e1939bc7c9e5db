"""From a reference to the object that it names."""

from pathlib import Path
from types import ModuleType
from typing import Any

from phalanx.custom.blame import describe_error
from phalanx.custom.code import is_installed, module_path, read_with_imports, root_of
from phalanx.custom.installed import FOLDER, add, import_code, installed, note_package
from phalanx.custom.reference import Reference, parse_strictly
from phalanx.errors import UserError, nearest


def load(reference: str) -> Any:
    """The class, function or object that a reference names.

    `code/nets.py:TinyNet` comes from the code that this process has got; any other file is read from the disk.
    """
    found = parse_strictly(reference)
    module = _file_module(found) if found.is_file else _named_module(found)
    value: Any = module
    for part in found.name.split("."):
        if not hasattr(value, part):
            raise _no_such_name(found, module, value, part)
        value = getattr(value, part)
    return value


def _file_module(found: Reference) -> ModuleType:
    known = {f"{FOLDER}/{file.name}": file for file in installed()}.get(found.place)
    if known is None:
        files = read_with_imports(Path(found.place))
        add(files)
        known = files[0]
    return _import(known.module, known.origin)


def _named_module(found: Reference) -> ModuleType:
    path = module_path(found.place)
    if path is None:
        raise no_such_module(found)
    if not is_installed(path):
        return _file_module(Reference(str(path), found.name))
    note_package(path)
    return _import(found.place, str(path))


def no_such_module(found: Reference) -> UserError:
    """The error for `package.module:name` where there is no such module."""
    return UserError(
        f"there is no Python module {found.place}",
        why=f"neither an installed package nor {Path.cwd()} has it",
        remedy=f"install {found.place.split('.')[0]} on all hosts, or name the file: path/to/file.py:{found.name}",
    )


def _import(module: str, path: str) -> ModuleType:
    try:
        return import_code(module)
    except UserError:
        raise
    except ModuleNotFoundError as error:
        raise UserError(
            f"{path} cannot be imported: {error}",
            why=f"your code raised it:\n{describe_error(error)}",
            remedy=f"install {error.name} on all hosts, or put it beside the file: "
            f"modules in {root_of(Path(path))} that are imported with `import` travel with the job",
        ) from error
    except (Exception, SystemExit) as error:
        raise UserError(
            f"{path} cannot be imported: {type(error).__name__}",
            why=f"your code raised it:\n{describe_error(error)}",
            remedy="correct it; what a script should do only when it is started goes under "
            "`if __name__ == '__main__':`",
        ) from error


def _no_such_name(found: Reference, module: ModuleType, inside: Any, part: str) -> UserError:
    public = [name for name in vars(inside) if not name.startswith("_")] if hasattr(inside, "__dict__") else []
    own = [name for name in public if getattr(vars(inside)[name], "__module__", None) == module.__name__]
    where = found.place if inside is module else f"{inside.__name__} in {found.place}"
    return UserError(
        f"there is no {part} in {where}",
        why=f"the reference is {found}",
        remedy=nearest(part, own or public) if public else "define it there",
    )
