"""dev/env.sh: which PyTorch ./phalanx and ./check install. pip is a script that notes what it is asked for."""

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
    pip = tmp_path / ".venv" / "bin" / "pip"
    pip.parent.mkdir(parents=True)
    pip.write_text(f'#!/bin/sh\necho "$@" >>{tmp_path}/asked\n')
    pip.chmod(0o755)
    return tmp_path


def make_env(checkout: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    script = f'set -eu; root={checkout}; . "$root/dev/env.sh"; make_env ""'
    environment = {"PATH": "/usr/bin:/bin", "PYTHON": sys.executable, **variables}
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


def test_another_index_can_be_named_and_anything_else_is_refused(checkout: Path) -> None:
    assert make_env(checkout, PHALANX_TORCH="https://mirror.example/cpu").returncode == 0
    assert asked(checkout)[0] == "--index-url https://mirror.example/cpu torch torchvision"
    refused = make_env(checkout, PHALANX_TORCH="gpu")
    assert refused.returncode == 2
    assert "PHALANX_TORCH=gpu is neither cpu nor the address of an index" in refused.stderr
