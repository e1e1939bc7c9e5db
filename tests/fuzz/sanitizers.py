"""The environment in which our C code is compiled with AddressSanitizer and UBSan, and loaded into Python.

The sources are built by native/build.py as always, only with another compiler command. So what is tested is what users
run, and no second build has to be kept alike. It takes gcc alone. libFuzzer would need clang and a C program for each
source; in return it would find its way by coverage, which our own damage to valid files makes up for.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

# Without optimization they see every access, and the code compiles in a second instead of ten.
FLAGS = "-O0 -g1 -fsanitize=address,undefined -fno-sanitize-recover=all"
# Python itself never frees some of its memory. What malloc cannot give is NULL, which our code has to live with.
ASAN_OPTIONS = "detect_leaks=0:allocator_may_return_null=1:max_allocation_size_mb=1024:exitcode=77"
UBSAN_OPTIONS = "print_stacktrace=1"


class NoSanitizers(Exception):
    """Why the code cannot be tested here."""


def environment() -> dict[str, str]:
    """Variables for a Python process whose native code is sanitized. Raises NoSanitizers."""
    compiler = shutil.which("gcc")
    if compiler is None or sys.platform != "linux":
        raise NoSanitizers("gcc is not installed, or this is not Linux")
    # Python is not linked with the sanitizers, and without PyTorch nobody brings OpenMP.
    preload = [_library(compiler, name) for name in ("libasan.so", "libubsan.so", "libgomp.so")]
    return {
        **os.environ,
        "CC": f"{compiler} {FLAGS}",
        "LD_PRELOAD": " ".join(preload),
        "PYTHONMALLOC": "malloc",  # Python's own allocator would hide what is read beyond the end of an object
        "OMP_WAIT_POLICY": "passive",
        "ASAN_OPTIONS": ASAN_OPTIONS,
        "UBSAN_OPTIONS": UBSAN_OPTIONS,
    }


def _library(compiler: str, name: str) -> str:
    said = subprocess.run([compiler, f"-print-file-name={name}"], capture_output=True, text=True, check=True)
    path = Path(said.stdout.strip())
    if not path.is_absolute():
        raise NoSanitizers(f"{name} of gcc is not installed")
    return str(path.resolve())
