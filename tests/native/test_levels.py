"""The level of CPU whose code is used; and code for another machine, under its emulator."""

import shutil
from pathlib import Path

import pytest
from dev.wheel_hook import compile_all, platform_tag

from phalanx.native import features, levels
from phalanx.native.build import shipped_library, shipped_name
from phalanx.native.levels import LEVELS, runnable_levels
from tests.native.wheels import EXACT, compile_program, computed, computed_by_own

ARM = "aarch64-linux-gnu"
V3 = next(level for level in LEVELS if level.name == "x86-64-v3")
BF16 = next(level for level in LEVELS if level.name == "avx512-bf16")


@pytest.fixture
def x86(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    return monkeypatch


def have(monkeypatch: pytest.MonkeyPatch, flags: frozenset[str]) -> list[str]:
    for module in (features, levels):
        monkeypatch.setattr(module, "cpu_flags", lambda: flags | {"fpu"})
    return [level.name for level in runnable_levels()]


def test_the_best_level_that_has_all_its_flags_comes_first(x86: pytest.MonkeyPatch) -> None:
    x86.delenv(features.SWITCH, raising=False)
    assert have(x86, frozenset()) == ["x86-64"]
    assert have(x86, V3.needs) == ["x86-64-v3", "x86-64"]
    assert have(x86, V3.needs - {"bmi2"}) == ["x86-64"]
    assert have(x86, BF16.needs) == ["avx512-bf16", "x86-64-v4", "x86-64-v3", "x86-64"]


@pytest.mark.parametrize(("limit", "best"), [("x86-64", "x86-64"), ("avx2", "x86-64-v3"), ("avx512", "x86-64-v4")])
def test_phalanx_cpu_limits_the_level(x86: pytest.MonkeyPatch, limit: str, best: str) -> None:
    x86.setenv(features.SWITCH, limit)
    assert have(x86, BF16.needs)[0] == best
    assert have(x86, frozenset())[0] == "x86-64"  # what is only claimed is not run


def test_a_library_of_a_lower_level_serves_where_the_best_has_none(x86: pytest.MonkeyPatch, tmp_path: Path) -> None:
    have(x86, BF16.needs)
    assert shipped_library("norm", tmp_path) is None
    for level in ("x86-64", "x86-64-v3"):
        (tmp_path / shipped_name("norm", level)).touch()
    x86.delenv(features.SWITCH, raising=False)
    assert shipped_library("norm", tmp_path) == tmp_path / "norm.x86-64-v3.so"


def test_a_platform_has_the_glibc_of_its_newest_symbol(tmp_path: Path) -> None:
    old, new = tmp_path / "old.so", tmp_path / "new.so"
    old.write_bytes(b"\0libc.so.6\0GLIBC_2.2.5\0GLIBC_2.14\0")
    new.write_bytes(b"\0GLIBC_2.34\0")
    assert platform_tag("x86_64-linux-gnu", [old]) == "manylinux_2_17_x86_64"
    assert platform_tag("aarch64-linux-gnu", [old, new]) == "manylinux_2_34_aarch64"
    assert platform_tag("x86_64-alpine-linux-musl", [old]) == "linux_x86_64"
    assert platform_tag("arm64-apple-darwin23.1.0", []) == "macosx_11_0_arm64"


def test_code_for_aarch64_computes_the_same_bits(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    emulator, compiler = shutil.which("qemu-aarch64"), shutil.which(f"{ARM}-gcc")
    if emulator is None or compiler is None:
        pytest.skip("qemu-user or gcc-aarch64-linux-gnu is not installed")
    expected = computed_by_own(tmp_path)
    monkeypatch.setenv("CC", compiler)
    machine, libraries = compile_all(tmp_path)
    assert platform_tag(machine, libraries) == "manylinux_2_17_aarch64"
    emulated = [emulator, "-L", f"/usr/{ARM}", str(compile_program(tmp_path, compiler))]
    there = computed(emulated, tmp_path, "aarch64", tmp_path)
    assert there["winograd"] == there["norm"] == "within 1"
    assert {name: there[name] for name in EXACT} == {name: expected[name] for name in EXACT}
