"""Loads the libraries of this folder's C and C++ sources: the wheel's, or compiled at first use; or says why not.

A wheel has each library for several kinds of CPU, and the best that this CPU can run is loaded. A checkout has none,
nor has a wheel that was built without a compiler. Then a source is compiled once per machine, for its very CPU, and
cached in the user's cache folder. The library's name depends on its source and the headers here, the compiler and its
flags, and the CPU: an edited source, or another machine with the same home folder, gets its own.
Several processes may start at once: each compiles in a folder of its own and renames the library to its name in the
cache. The last one wins, with the same content.
"""

import ctypes
import functools
import hashlib
import os
import platform
import stat
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from phalanx.atomic import sync
from phalanx.native.compiler import (
    COMPILERS,
    OPENMP_OF_CLANG,
    NotBuilt,
    compile_command,
    compile_library,
    sources,
)
from phalanx.native.features import compiler_architecture
from phalanx.native.levels import runnable_levels

SWITCH = "PHALANX_NATIVE"  # 0 turns all native code off
FOLDER_OF_WHEEL = "compiled"  # beside the sources


@dataclass(frozen=True)
class Library:
    """A loaded library, or the reason why there is none."""

    handle: ctypes.CDLL | None
    reason: str
    origin: str = ""  # for which CPU it is compiled, and where


def load_library(name: str) -> ctypes.CDLL | None:
    """The library of `name.c` or `name.cpp`; None if there is none for this machine, and `native_status` says why.

    Functions called through it run without Python's lock.
    """
    return find_library(name).handle


def native_status() -> str:
    """The state of each library that was used so far, as text for users."""
    reasons = [f"{name}: {library.reason}" for name, library in sorted(_found.items())]
    return "; ".join(reasons) or "no native code was needed so far"


def native_origins() -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """The names of all libraries by where they come from; and of those that are not there, by the reason.

    Compiles what is not there yet.
    """
    present: dict[str, list[str]] = {}
    absent: dict[str, list[str]] = {}
    for source in sources():
        library = find_library(source.stem)
        if library.handle is None:
            absent.setdefault(library.reason, []).append(source.stem)
        else:
            present.setdefault(library.origin, []).append(source.stem)
    return present, absent


_found: dict[str, Library] = {}


@functools.cache
def find_library(name: str, instead: str = "PyTorch") -> Library:
    """Load a library, compiling it if need be. Cached for the life of the process.

    `instead` names the fallback.
    """
    library = _find(_source(name), instead)
    _found[name] = library
    return library


def cache_folder() -> Path:
    """The cache folder of compiled libraries."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "phalanx" / "native"


def _source(name: str) -> Path:
    for suffix in COMPILERS:
        path = Path(__file__).with_name(name + suffix)
        if path.exists():
            return path
    raise FileNotFoundError(f"src/phalanx/native has no {name}.c or {name}.cpp")


def _find(source: Path, instead: str) -> Library:
    if os.environ.get(SWITCH) == "0":
        return Library(None, f"{instead} ({SWITCH}=0)")
    refused = ""
    if shipped := shipped_library(source.stem):
        try:
            return _loaded(ctypes.CDLL(str(shipped)), shipped, f"{_level_of(shipped)} of the wheel")
        except OSError as error:
            refused = f"the wheel's cannot be loaded: {error}; "
    try:
        command = compile_command(source, [f"-march={compiler_architecture()}"])
        target = cache_folder() / f"{source.stem}-{library_key(source, command)}.so"
        return _loaded(_compiled(source, command, target), target, f"compiled here for {compiler_architecture()}")
    except NotBuilt as error:
        return Library(None, f"{instead}, which is slower ({refused}{error})")
    except (OSError, RuntimeError) as error:  # RuntimeError: there is no home folder
        why = f"{refused}{error}; set XDG_CACHE_HOME to a folder for compiled code"
        return Library(None, f"{instead}, which is slower ({why})")


def _loaded(handle: ctypes.CDLL, path: Path, origin: str) -> Library:
    return Library(handle, f"native ({origin}: {path})", f"{origin}, in {path.parent}")


def shipped_library(name: str, folder: Path | None = None) -> Path | None:
    """The wheel's library for the best level that this CPU can run; None in a checkout."""
    folder = folder or Path(__file__).with_name(FOLDER_OF_WHEEL)
    files = (folder / shipped_name(name, level.name) for level in runnable_levels())
    return next((file for file in files if file.exists()), None)


def shipped_name(name: str, level: str) -> str:
    return f"{name}.{level}.so"


def _level_of(shipped: Path) -> str:
    return shipped.name.split(".")[1]


def _compiled(source: Path, command: Sequence[str], target: Path) -> ctypes.CDLL:
    if not target.exists() or _changeable(target):
        _build(source, command, target)
        if others := _changeable(target):
            raise NotBuilt(f"{others}; set XDG_CACHE_HOME to a folder of your own")
    try:
        return ctypes.CDLL(str(target))
    except OSError:  # a crash of the machine may have left a damaged file
        _build(source, command, target)
    try:
        return ctypes.CDLL(str(target))
    except OSError as error:
        raise NotBuilt(f"what {command[0]} makes cannot be loaded: {error}") from None


def library_key(source: Path, command: Sequence[str]) -> str:
    """A key that differs wherever the compiled code would."""
    beside = [*sorted(source.parent.glob("*.h")), source.with_name(OPENMP_OF_CLANG)]
    texts = (path.read_bytes() for path in beside if path.exists())
    parts = [source.read_bytes(), *texts, "\0".join(command).encode(), _cpu().encode()]
    return hashlib.sha256(b"\0\0".join(parts)).hexdigest()[:20]


def _cpu() -> str:
    """What -march=native depends on."""
    try:
        lines = Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines()
    except OSError:
        return f"{platform.machine()} {platform.processor()}"
    telling = ("model name", "flags", "Features", "CPU part")
    return "\n".join([platform.machine(), *(line for line in lines if line.startswith(telling))])


def _changeable(library: Path) -> str:
    """Who but this user and root can put code into the library, or exchange it; empty if nobody can."""
    path = library.resolve()
    for place in (path, *path.parents):
        status = place.stat()
        if status.st_uid not in (os.geteuid(), 0):
            return f"{place} belongs to another user"
        # A folder with the sticky bit, such as /tmp, protects what is in it.
        ours = place in (path, path.parent)
        if status.st_mode & (0o022 if ours else 0o002) and not (place.is_dir() and status.st_mode & stat.S_ISVTX):
            return f"{place} can be changed by other users"
    return ""


def _build(source: Path, command: Sequence[str], target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    # The linker writes the library by its name, so this is a folder and a rename rather than `write_atomically`.
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        linked = Path(folder) / target.name
        compile_library(source, command, linked)
        linked.chmod(0o755)  # whatever the umask: nobody else writes it
        sync(linked)
        linked.replace(target)
