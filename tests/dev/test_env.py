"""dev/env.sh: which PyTorch ./phalanx and ./check install. pip is a script that notes what it is asked for.

PYTHON is a script, too: it makes virtual environments that have nothing but this pip.
"""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CPU = "--index-url https://download.pytorch.org/whl/cpu torch torchvision"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for name in ("dev/env.sh", "pyproject.toml"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    script(tmp_path / "pip", f'echo "$@" >>{tmp_path}/asked')
    make = f'rm -rf "$4"; mkdir -p "$4/bin"; cp {tmp_path}/pip "$4/bin"'
    script(tmp_path / "python", f'case "$*" in "-m venv --clear "*) {make} ;; *) exec {sys.executable} "$@" ;; esac')
    return tmp_path


def script(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def make_env(checkout: Path, extras: str = "", **variables: str) -> subprocess.CompletedProcess[str]:
    script = f'set -eu; root={checkout}; . "$root/dev/env.sh"; make_env "{extras}"'
    environment = {"PATH": "/usr/bin:/bin", "PYTHON": str(checkout / "python"), **variables}
    return subprocess.run(["sh", "-c", script], env=environment, capture_output=True, text=True, check=False)


def asked(checkout: Path) -> list[str]:
    """What pip was asked for since the last time."""
    file = checkout / "asked"
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    file.write_text("")
    return [line.removeprefix("install --quiet --disable-pip-version-check ") for line in lines]


def test_the_build_of_torch_is_chosen_once_and_kept(checkout: Path) -> None:
    ours = f"--editable {checkout}"
    assert make_env(checkout).returncode == 0
    assert asked(checkout) == [ours]
    assert make_env(checkout, PHALANX_TORCH="cpu").returncode == 0
    assert asked(checkout) == [CPU, ours]
    assert make_env(checkout).returncode == make_env(checkout, PHALANX_TORCH="cpu").returncode == 0
    assert asked(checkout) == []
    (checkout / "pyproject.toml").write_text("newer")
    assert make_env(checkout).returncode == 0
    assert asked(checkout) == [CPU, ours]


def test_another_build_of_torch_needs_an_environment_made_anew(checkout: Path) -> None:
    marker = checkout / ".venv" / "torch of the registry"
    assert make_env(checkout).returncode == 0
    marker.touch()
    assert make_env(checkout, "[dev]").returncode == 0
    assert make_env(checkout, PHALANX_TORCH="gpu").returncode == 2
    assert marker.exists()
    asked(checkout)
    assert make_env(checkout, PHALANX_TORCH="cpu").returncode == 0
    assert not marker.exists()
    assert asked(checkout) == [CPU, f"--editable {checkout}"]
    assert make_env(checkout, "[dev]").returncode == 0  # its stamp was of the other build
    assert asked(checkout) == [CPU, f"--editable {checkout}[dev]"]


def test_another_index_can_be_named_and_anything_else_is_refused(checkout: Path) -> None:
    assert make_env(checkout, PHALANX_TORCH="https://mirror.example/cpu").returncode == 0
    assert asked(checkout)[0] == "--index-url https://mirror.example/cpu torch torchvision"
    refused = make_env(checkout, PHALANX_TORCH="gpu")
    assert refused.returncode == 2
    assert "PHALANX_TORCH=gpu is neither cpu nor the address of an index" in refused.stderr
