"""A wheel of this tree: it brings compiled code for each level of CPU, and needs no compiler where it is installed."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from dev.wheel_hook import glibc_versions, platform_tag

from phalanx.native.build import shipped_library, shipped_name
from phalanx.native.compiler import sources
from phalanx.native.levels import LEVELS, runnable_levels
from tests.native.wheels import EXACT, compile_program, computed

ROOT = Path(__file__).resolve().parents[2]
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check")

needs_gcc = pytest.mark.skipif(shutil.which("gcc") is None or sys.platform != "linux", reason="gcc is not installed")

TRAIN = """
import sys
import phalanx
from phalanx.commands.checks import CHECKS
print(phalanx.__file__)
print(next(check for check in CHECKS if check.name == "native code").finding())
settings = {"train.length": "1st", "machine.threads": 1, "train.curves": False}
phalanx.train("digits", settings=settings, out=sys.argv[1])
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel, as pip makes it."""
    folder = tmp_path_factory.mktemp("wheel")
    make = (*PIP, "wheel", "--quiet", "--no-build-isolation", "--no-deps", "--wheel-dir", str(folder), str(ROOT))
    subprocess.run(make, check=True, env={**os.environ, "CC": "gcc"})
    (made,) = folder.glob("*.whl")
    return made


@pytest.fixture(scope="module")
def installed(wheel: Path) -> Path:
    folder = wheel.with_name("installed")
    command = (*PIP, "install", "--quiet", "--no-deps", "--no-index", "--target", str(folder), str(wheel))
    subprocess.run(command, check=True)
    return folder


def without_compiler(folder: Path) -> dict[str, str]:
    """Variables of a process that finds the installed package first, no program at all, and an empty cache."""
    (folder / "bin").mkdir()
    kept = {name: value for name, value in os.environ.items() if name not in ("CC", "CXX")}
    return {**kept, "PATH": str(folder / "bin"), "XDG_CACHE_HOME": str(folder / "cache")}


@needs_gcc
def test_a_wheel_has_each_source_for_each_level_and_names_the_glibc_they_need(wheel: Path, tmp_path: Path) -> None:
    here = os.uname().machine
    levels = [level for level in LEVELS if level.machine == here]
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if name.startswith("phalanx/native/compiled/")]
        archive.extractall(tmp_path, names)
    assert sorted(Path(name).name for name in names) == sorted(
        shipped_name(source.stem, level.name)
        for source in sources()
        for level in levels
        if level.macro in source.read_text(encoding="utf-8")
    )
    needed = max(version for name in names for version in glibc_versions(tmp_path / name))
    interpreter, abi, platform = wheel.stem.split("-")[-3:]
    assert (interpreter, abi) == ("py3", "none")
    assert platform == f"manylinux_2_{max(17, needed[1])}_{here}"


def test_the_platform_is_read_from_any_compilers_machine() -> None:
    for machine, tag in (
        ("x86_64-linux-gnu", "manylinux_2_17_x86_64"),
        ("x86_64-redhat-linux", "manylinux_2_17_x86_64"),
        ("aarch64-suse-linux", "manylinux_2_17_aarch64"),
        ("x86_64-alpine-linux-musl", "linux_x86_64"),
        ("arm64-apple-darwin23.6.0", "macosx_11_0_arm64"),
    ):
        assert platform_tag(machine, []) == tag


@needs_gcc
def test_an_installed_wheel_needs_no_compiler_for_the_fast_path(installed: Path, tmp_path: Path) -> None:
    environment = {**without_compiler(tmp_path), "PYTHONPATH": str(installed)}
    done = subprocess.run(
        [sys.executable, "-c", TRAIN, str(tmp_path / "run")],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    where, native = done.stdout.splitlines()[:2]
    assert where == str(installed / "phalanx" / "__init__.py")
    folder = installed / "phalanx" / "native" / "compiled"
    by_level: dict[str, list[str]] = {}
    for source in sources():
        library = shipped_library(source.stem, folder)
        assert library is not None
        by_level.setdefault(library.name.split(".")[1], []).append(source.stem)
    expected = "; ".join(f"{level} of the wheel, in {folder}: {', '.join(names)}" for level, names in by_level.items())
    assert f"status='ok', detail='{expected}'" in native
    assert "fast_path: native" in (tmp_path / "run" / "log.txt").read_text(encoding="utf-8")
    assert not (tmp_path / "cache" / "phalanx" / "native").exists()


@needs_gcc
def test_every_level_computes_the_same_bits(installed: Path, tmp_path: Path) -> None:
    program, libraries = compile_program(tmp_path, "gcc"), installed / "phalanx" / "native" / "compiled"
    levels = [level.name for level in runnable_levels() if not level.macro]
    found = {level: computed([str(program)], libraries, level, tmp_path) for level in levels}
    first = found[levels[0]]
    assert all(first[name].startswith("bits ") for name in EXACT)
    for result in found.values():
        assert {name: result[name] for name in EXACT} == {name: first[name] for name in EXACT}
        assert result["winograd"] == result["norm"] == "within 1"
    assert len({result["jpeg_decode"] for result in found.values() if "jpeg_decode" in result}) <= 1


def test_without_a_compiler_a_wheel_has_the_sources_only_and_says_so(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, env=without_compiler(tmp_path), capture_output=True, text=True, check=True)
    assert (
        "this wheel has no compiled code: none of the compilers cc, gcc, clang is installed"
        in done.stdout + done.stderr
    )
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert "phalanx/native/winograd.c" in names
    assert not any(name.endswith(".so") for name in names)
