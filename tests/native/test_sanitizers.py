"""The C code under AddressSanitizer and UBSan; `./check --fuzz SECONDS` goes on where this stops."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz.native import KEPT, ROOT
from tests.fuzz.sanitizers import NoSanitizers, environment
from tests.fuzz.targets import TARGETS


def fuzzer(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    try:
        environment()
    except NoSanitizers as error:
        pytest.skip(f"the sanitizers are not installed: {error}")
    command = [sys.executable, "-m", "tests.fuzz.native", *arguments]
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    return subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, check=False)


def test_the_corpus_is_clean(tmp_path: Path) -> None:
    done = fuzzer(tmp_path, "--corpus")
    assert done.returncode == 0, done.stderr
    assert [line.split(":")[0] for line in done.stdout.splitlines()] == list(TARGETS)
    assert done.stdout.count("nothing found") == len(TARGETS)
    assert not (tmp_path / KEPT).exists()


def test_a_fault_is_kept_and_can_be_seen_again(tmp_path: Path) -> None:
    done = fuzzer(tmp_path, "5", "--target", "overrun", "--seed", "1")
    assert done.returncode == 1
    assert "heap-buffer-overflow" in done.stderr
    kept = sorted((tmp_path / KEPT).iterdir())
    assert [path.suffix for path in kept] == ["", ".txt"]
    told = done.stderr.splitlines()
    assert str(kept[0]) in told[-2]
    again = subprocess.run(told[-1].partition(": ")[2], shell=True, capture_output=True, text=True, check=False)
    assert again.returncode == 1
    assert "heap-buffer-overflow" in again.stderr
