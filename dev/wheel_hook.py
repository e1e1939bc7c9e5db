"""Puts compiled code into a wheel: each C source for each kind of CPU of the compiler's machine; called by hatchling.

The code needs no Python.h, so one wheel serves all Pythons of a platform. CC=aarch64-linux-gnu-gcc makes a wheel for
another machine. Without a compiler the wheel has the sources only, and they are compiled at first use.
"""

import os
import re
import sys
import tempfile
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOT = Path(__file__).resolve().parent.parent
LEAST_GLIBC = (2, 17)  # of the oldest manylinux that is still built for
LEAST_MACOS = "11.0"  # the first on arm64


class NativeCode(BuildHookInterface[Any]):
    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":  # a checkout's sources change: compiled at first use
            return
        sys.path.insert(0, str(ROOT / "src"))
        from phalanx.native.build import FOLDER_OF_WHEEL
        from phalanx.native.compiler import NotBuilt

        self._folder = tempfile.TemporaryDirectory()  # until the wheel is written
        try:
            machine, libraries = compile_all(Path(self._folder.name))
        except NotBuilt as error:
            self.app.display_warning(f"this wheel has no compiled code: {error}")
            return
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{platform_tag(machine, libraries)}"
        for library in libraries:
            build_data["force_include"][str(library)] = f"phalanx/native/{FOLDER_OF_WHEEL}/{library.name}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if version != "editable":
            self._folder.cleanup()


def compile_all(folder: Path) -> tuple[str, list[Path]]:
    """The machine that the compiler compiles for, and a library in the folder for each source and level of it."""
    from phalanx.native.build import shipped_name
    from phalanx.native.compiler import NotBuilt, compile_command, compile_library, compiled_for, sources
    from phalanx.native.levels import LEVELS

    os.environ.setdefault("MACOSX_DEPLOYMENT_TARGET", LEAST_MACOS)  # clang's on macOS
    machine = compiled_for()
    levels = [level for level in LEVELS if level.machine == machine.partition("-")[0]]
    if not levels:
        raise NotBuilt(f"there are no levels for {machine}")
    work = [
        (source, compile_command(source, level.flags), folder / shipped_name(source.stem, level.name))
        for source in sources()
        for level in levels
        if level.macro in source.read_text(encoding="utf-8")
    ]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(lambda each: compile_library(*each), work))
    return machine, [library for _, _, library in work]


def platform_tag(machine: str, libraries: Iterable[Path]) -> str:
    """The platform of a wheel with these libraries: on Linux with the glibc that they need, as PEP 600 has it."""
    architecture = machine.partition("-")[0]
    if "-darwin" in machine:
        return f"macosx_{LEAST_MACOS.replace('.', '_')}_{architecture}"
    if "-linux" not in machine or "musl" in machine:  # Fedora's gcc names its vendor, and no glibc
        return f"linux_{architecture}"
    needed = max([LEAST_GLIBC, *(version for library in libraries for version in glibc_versions(library))])
    return f"manylinux_{needed[0]}_{needed[1]}_{architecture}"


def glibc_versions(library: Path) -> list[tuple[int, int]]:
    """The versions of glibc's symbols that a library wants: their names stand in its table of strings."""
    names = re.findall(rb"\0GLIBC_(\d+)\.(\d+)(?:\.\d+)?(?=\0)", library.read_bytes())
    return [(int(major), int(minor)) for major, minor in names]
