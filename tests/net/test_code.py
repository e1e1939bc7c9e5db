"""The digest of the code: any file that decides results changes it, and nothing else does."""

import shutil
from pathlib import Path

import pytest

import phalanx
from phalanx.net.code import digest_here, digest_of


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The package as another host would have it: without what Python has compiled here."""
    source = Path(phalanx.__file__).parent
    return Path(shutil.copytree(source, tmp_path / "phalanx", ignore=shutil.ignore_patterns("__pycache__")))


def test_a_copy_has_the_same_digest(copy: Path) -> None:
    assert digest_of(copy) == digest_here()
    (copy / "__pycache__").mkdir()
    (copy / "__pycache__" / "atomic.cpython-311.pyc").write_bytes(b"compiled")
    (copy / "atomic.py~").write_text("an editor's backup")
    assert digest_of(copy) == digest_here()


@pytest.mark.parametrize("kind", ["*.h", "*.c", "*.yaml", "*.py"])
def test_every_file_that_decides_results_counts(copy: Path, kind: str) -> None:
    changed = max(copy.rglob(kind))
    changed.write_bytes(changed.read_bytes() + b"\n")
    assert digest_of(copy) != digest_here(), changed


def test_a_file_that_is_missing_or_renamed_counts(copy: Path) -> None:
    header = max(copy.rglob("*.h"))
    header.rename(header.with_name("other.h"))
    renamed = digest_of(copy)
    header.with_name("other.h").unlink()
    assert len({renamed, digest_of(copy), digest_here()}) == 3
