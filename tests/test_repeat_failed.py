"""Tests that fail beside others are repeated alone. If they pass then, so does the run; nothing else is forgiven."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ONCE = """
from pathlib import Path
import pytest

@pytest.mark.parametrize("words", [["two", "words"]], ids=" ".join)
def test_once(words):
    marker = Path(__file__).with_name("marker")
    there = marker.exists()
    marker.touch()
    assert there

def test_good(): ...
"""
BAD = "import pytest\n@pytest.mark.parametrize('number', range({}))\ndef test_bad(number): assert False\n"


def run(folder: Path, *words: str) -> tuple[int, str]:
    (folder / "pytest.ini").write_text("[pytest]\n")
    (folder / "test_once.py").write_text(ONCE)
    command = [sys.executable, "-m", "pytest", "-p", "dev.repeat_failed", str(folder), *words]
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120)
    return done.returncode, done.stdout + done.stderr


def test_what_passes_alone_is_told_and_passes(tmp_path: Path) -> None:
    code, said = run(tmp_path, "-p", "xdist", "-n", "1")
    assert "1 failed, 1 passed" in said
    assert said.endswith("\nfailed once, passed alone: test_once.py::test_once[two words]\n")
    assert code == 0


@pytest.mark.parametrize(("number", "repeated"), [(1, True), (10, False)])
def test_what_fails_again_fails_and_many_are_no_accident(tmp_path: Path, number: int, repeated: bool) -> None:
    (tmp_path / "test_bad.py").write_text(BAD.format(number))
    code, said = run(tmp_path)
    assert code == 1
    assert ("once more, alone" in said) == repeated
    assert "passed alone" not in said


def test_a_run_that_was_not_complete_is_not_repeated(tmp_path: Path) -> None:
    code, said = run(tmp_path, "-x")
    assert (code, "once more, alone" in said) == (1, False)
    (tmp_path / "marker").unlink()
    (tmp_path / "test_broken.py").write_text("import nothing_of_that_name\n")
    code, said = run(tmp_path, "--continue-on-collection-errors")
    assert (code, "once more, alone" in said) == (1, False)
    code, said = run(tmp_path)
    assert (code, "once more, alone" in said) == (2, False)
