"""The compiler's command for a C or C++ source of this folder, and running it: at first use, and for a wheel."""

import itertools
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

# Without trapping math the compiler may compare eight floats at once; without contraction a product and a sum round
# twice, as they do in PyTorch. Neither changes a result, so native code and its PyTorch twin agree in every bit.
FLAGS = ("-O3", "-fno-trapping-math", "-ffp-contract=off", "-fPIC")
# Code of a training step may use fused multiply-add, and shares PyTorch's threads: it is compiled for OpenMP but linked
# without it, so it uses the OpenMP library that PyTorch has loaded, and starts no second team of threads.
PARALLEL_SOURCES = ("conv_bf16", "norm", "winograd")
# Apple's clang takes the option only so.
PARALLEL = ("-ffp-contract=fast", *(("-Xclang",) if sys.platform == "darwin" else ()), "-fopenmp")
OPENMP_OF_CLANG = "openmp_of_clang.c"  # compiled into them; empty for gcc
LINK = ("-shared", *(("-undefined", "dynamic_lookup") if sys.platform == "darwin" else ()))
LIBRARIES = ("-lm",)
COMPILERS = {".c": ("CC", ("cc", "gcc", "clang")), ".cpp": ("CXX", ("c++", "g++", "clang++"))}
TIMEOUT_S = 300


class NotBuilt(Exception):
    """Why a source could not be compiled."""


def sources() -> list[Path]:
    """One for each library."""
    found = (path for suffix in COMPILERS for path in Path(__file__).parent.glob(f"*{suffix}"))
    return sorted(path for path in found if path.name != OPENMP_OF_CLANG)


def compile_command(source: Path, target: Sequence[str]) -> list[str]:
    """The compiler with all flags; `target` says for which CPU. What the user has put into CC comes last, and wins."""
    words = _compiler(source.suffix)
    program = list(itertools.takewhile(lambda word: not word.startswith("-"), words))
    parallel = PARALLEL if source.stem in PARALLEL_SOURCES else ()
    return [*program, *target, *FLAGS, *parallel, *words[len(program) :]]


def parts_of(source: Path) -> list[Path]:
    """The files that are compiled into its library."""
    return [source, *([source.with_name(OPENMP_OF_CLANG)] if source.stem in PARALLEL_SOURCES else [])]


def compile_library(source: Path, command: Sequence[str], library: Path) -> None:
    """Compile and link. Raises NotBuilt, with what the compiler says."""
    with tempfile.TemporaryDirectory(dir=library.parent) as folder:
        compiled = []
        for part in parts_of(source):
            compiled.append(str(Path(folder, f"{part.stem}.o")))
            _run([*command, "-c", str(part), "-o", compiled[-1]], source)
        _run([*_compiler(source.suffix), *LINK, *compiled, "-o", str(library), *LIBRARIES], source)


def compiled_for() -> str:
    """The machine that the C compiler compiles for, such as x86_64-linux-gnu. Raises NotBuilt."""
    return _run([*_compiler(".c"), "-dumpmachine"], None).strip()


def _compiler(suffix: str) -> list[str]:
    variable, candidates = COMPILERS[suffix]
    if chosen := os.environ.get(variable):
        return shlex.split(chosen)
    for name in candidates:
        if path := shutil.which(name):
            return [path]
    raise NotBuilt(f"none of the compilers {', '.join(candidates)} is installed and {variable} is not set")


def _run(command: list[str], source: Path | None) -> str:
    try:
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=TIMEOUT_S).stdout
    except FileNotFoundError:
        raise NotBuilt(f"the compiler {command[0]} does not exist") from None
    except subprocess.TimeoutExpired:
        raise NotBuilt(f"{command[0]} did not finish within {TIMEOUT_S} s") from None
    except subprocess.CalledProcessError as error:
        said = error.stderr.strip().splitlines() or ["no message"]
        complaint = next((line for line in said if "error:" in line), said[-1])
        refused = source.name if source else command[-1]
        raise NotBuilt(f"{command[0]} refused {refused}: {complaint}") from None
