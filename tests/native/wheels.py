"""Running levels.c, which says what the libraries of a wheel compute."""

import functools
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from phalanx.native.build import find_library, shipped_name
from phalanx.native.compiler import sources

EXACT = ("two_bit", "one_bit", "top_k", "resample", "server_queues", "jpeg_sizes")  # the same bits on every CPU
_SOURCE = Path(__file__).with_name("levels.c")


def compile_program(folder: Path, compiler: str) -> Path:
    program = folder / "levels"
    subprocess.run([compiler, "-O1", "-fopenmp", str(_SOURCE), "-o", str(program), "-ldl", "-lm"], check=True)
    return program


@functools.cache
def _photograph() -> Image.Image:
    return Image.fromarray(np.random.default_rng(0).integers(0, 255, (90, 101, 3), dtype=np.uint8))


def computed(program: Sequence[str], libraries: Path, level: str, folder: Path) -> dict[str, str]:
    """What each library computes for fixed inputs: a hash of its bits, or whether its errors are small."""
    file = folder / "noise.jpg"
    _photograph().save(file)
    words = [*program, str(libraries), level, str(file)]
    said = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    return dict(line.split(" ", 1) for line in said.splitlines())


def computed_by_own(folder: Path) -> dict[str, str]:
    """The same by the libraries that this process uses, wherever they come from."""
    import torch  # noqa: F401 (brings the OpenMP library)

    for source in sources():
        library = find_library(source.stem)
        if library.handle is None:
            pytest.skip(library.reason)
        (folder / shipped_name(source.stem, "own")).symlink_to(library.handle._name)
    return computed([str(compile_program(folder, "cc"))], folder, "own", folder)
