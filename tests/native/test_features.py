"""The CPU that code believes in, and what is held to it."""

import os
import platform
import shutil
import subprocess
import sys

import pytest

from phalanx.errors import UserError
from phalanx.native import features
from phalanx.native.features import LEVELS, SWITCH, compiler_architecture, cpu_features, real_features

CAPABILITY = """
from phalanx.native.features import hold_libraries_to_level
hold_libraries_to_level()
import torch
print(torch.backends.cpu.get_cpu_capability())
"""


@pytest.mark.parametrize("level", LEVELS)
def test_a_level_is_believed_in_on_any_machine(monkeypatch: pytest.MonkeyPatch, level: str) -> None:
    monkeypatch.setenv(SWITCH, level.upper())
    assert cpu_features() == LEVELS[level]


def test_without_a_level_the_cpu_itself_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SWITCH, raising=False)
    assert cpu_features() == real_features()
    assert compiler_architecture() == "native"
    assert set(real_features()) == set(features._features_by_torch())  # two ways to ask the same CPU


def test_flags_of_x86_and_of_arm_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    for flags, there in (
        ({"fpu", "avx2", "fma"}, ("AVX2",)),
        ({"fpu", "avx2", "fma", "avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512_bf16"}, LEVELS["avx512-bf16"]),
        ({"fp", "asimd", "bf16"}, ("ARM-BF16",)),
        ({"fp", "asimd"}, ()),
    ):
        monkeypatch.setattr(features, "cpu_flags", lambda flags=flags: flags)
        assert real_features() == there


def test_an_unknown_level_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SWITCH, "avx3")
    with pytest.raises(UserError, match="PHALANX_CPU=avx3 is not a known kind of CPU") as caught:
        cpu_features()
    assert "avx2" in caught.value.remedy


@pytest.mark.skipif("AVX512" not in real_features(), reason="there is nothing to hide: this CPU has no AVX512")
def test_torch_and_the_compiler_are_held_to_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SWITCH, "avx2")
    assert compiler_architecture() == "x86-64-v3"
    done = subprocess.run([sys.executable, "-c", CAPABILITY], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "AVX2"


@pytest.mark.skipif(platform.machine() != "x86_64" or shutil.which("gcc") is None, reason="needs gcc for x86-64")
def test_what_is_compiled_for_bf16_has_its_instruction(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(features, "real_features", lambda: LEVELS["amx"])
    monkeypatch.setenv(SWITCH, "avx512-bf16")
    ask = ["gcc", f"-march={compiler_architecture()}", "-dM", "-E", "-x", "c", "/dev/null"]
    macros = subprocess.run(ask, capture_output=True, text=True, check=True).stdout
    assert "__AVX512BF16__" in macros
    assert "__AMX_TILE__" not in macros


def test_what_is_only_claimed_is_asked_of_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(features, "real_features", lambda: LEVELS["avx2"])
    before = dict(os.environ)
    for level in ("avx2", "avx512-bf16", "amx", "arm-bf16"):
        monkeypatch.setenv(SWITCH, level)
        features.hold_libraries_to_level()
        assert compiler_architecture() == "native"
    assert {name for name in os.environ if name not in before} <= {SWITCH}
