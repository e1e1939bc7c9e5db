"""Compiles a C or C++ source of this folder once per machine, and loads it; or says why a fallback is used.

A library is cached in the user's cache folder. Its name depends on its source and the headers here, the compiler and
its flags, and the CPU: an edited source, or another machine with the same home folder, gets its own.
Several processes may start at once: each compiles in a folder of its own and renames the library to its name in the
cache. The last one wins, with the same content.
"""

import ctypes
import functools
import hashlib
import itertools
import os
import platform
import shlex
import shutil
import stat
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from phalanx.atomic import sync
from phalanx.native.features import compiler_architecture

# Without trapping math the compiler may compare eight floats at once; without contraction a product and a sum round
# twice, as they do in PyTorch. Neither changes a result, so native code and its PyTorch twin agree in every bit.
FLAGS = ("-O3", "-fno-trapping-math", "-ffp-contract=off", "-fPIC")
LIBRARIES = ("-lm",)
# Code of a training step may use fused multiply-add, and shares PyTorch's threads: it is compiled for OpenMP but linked
# without it, so it uses the OpenMP library that PyTorch has loaded, and starts no second team of threads.
PARALLEL = ("-ffp-contract=fast", "-fopenmp")
PARALLEL_SOURCES = ("conv_bf16", "norm", "winograd")
COMPILERS = {".c": ("CC", ("cc", "gcc", "clang")), ".cpp": ("CXX", ("c++", "g++", "clang++"))}
SWITCH = "PHALANX_NATIVE"  # 0 turns all native code off
TIMEOUT_S = 120


@dataclass(frozen=True)
class Library:
    """A loaded library, or the reason why there is none."""

    handle: ctypes.CDLL | None
    reason: str


class _NotBuilt(Exception):
    """Why a source could not be compiled."""


def load_library(name: str) -> ctypes.CDLL | None:
    """The library of `name.c` or `name.cpp`; None if it cannot be compiled, and `native_status` says why.

    Functions called through it run without Python's lock.
    """
    return find_library(name).handle


def native_status() -> str:
    """The state of each library that was used so far, as text for users."""
    reasons = [f"{name}: {library.reason}" for name, library in sorted(_found.items())]
    return "; ".join(reasons) or "no native code was needed so far"


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
    try:
        command = _command(source)
        target = cache_folder() / f"{source.stem}-{library_key(source, command)}.so"
        if not target.exists() or _changeable(target):
            _build(source, command, target)
            if others := _changeable(target):
                raise _NotBuilt(f"{others}; set XDG_CACHE_HOME to a folder of your own")
        try:
            handle = ctypes.CDLL(str(target))
        except OSError:  # a crash of the machine may have left a damaged file
            _build(source, command, target)
            handle = ctypes.CDLL(str(target))
    except _NotBuilt as error:
        return Library(None, f"{instead}, which is slower ({error})")
    except (OSError, RuntimeError) as error:  # RuntimeError: there is no home folder
        why = f"{error}; set XDG_CACHE_HOME to a folder for compiled code"
        return Library(None, f"{instead}, which is slower ({why})")
    return Library(handle, f"native ({target})")


def _command(source: Path) -> list[str]:
    """The compiler with all flags. Those that the user has put into CC come last, and so win."""
    words = _compiler(source.suffix)
    program = list(itertools.takewhile(lambda word: not word.startswith("-"), words))
    parallel = PARALLEL if source.stem in PARALLEL_SOURCES else ()
    return [*program, f"-march={compiler_architecture()}", *FLAGS, *parallel, *words[len(program) :]]


def _compiler(suffix: str) -> list[str]:
    variable, candidates = COMPILERS[suffix]
    if chosen := os.environ.get(variable):
        return shlex.split(chosen)
    for name in candidates:
        if path := shutil.which(name):
            return [path]
    raise _NotBuilt(f"none of the compilers {', '.join(candidates)} is installed and {variable} is not set")


def library_key(source: Path, command: list[str]) -> str:
    """A key that differs wherever the compiled code would."""
    headers = (header.read_bytes() for header in sorted(source.parent.glob("*.h")))
    parts = [source.read_bytes(), *headers, "\0".join(command).encode(), _cpu().encode()]
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


def _build(source: Path, command: list[str], target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    # The linker writes the library by its name, so this is a folder and a rename rather than `write_atomically`.
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        compiled, linked = Path(folder) / "compiled.o", Path(folder) / target.name
        try:
            for step in (
                [*command, "-c", str(source), "-o", str(compiled)],
                [*_compiler(source.suffix), "-shared", str(compiled), "-o", str(linked), *LIBRARIES],
            ):
                subprocess.run(step, check=True, capture_output=True, text=True, timeout=TIMEOUT_S)
        except FileNotFoundError:
            raise _NotBuilt(f"the compiler {command[0]} does not exist") from None
        except subprocess.TimeoutExpired:
            raise _NotBuilt(f"{command[0]} did not finish within {TIMEOUT_S} s") from None
        except subprocess.CalledProcessError as error:
            complaint = error.stderr.strip().splitlines() or ["no message"]
            raise _NotBuilt(f"{command[0]} refused {source.name}: {complaint[-1]}") from None
        linked.chmod(0o755)  # whatever the umask: nobody else writes it
        sync(linked)
        linked.replace(target)
