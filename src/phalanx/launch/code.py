"""The version of this Phalanx and a digest of its files, to check that all hosts run the same code."""

import hashlib
from pathlib import Path

from phalanx import __version__

_SUFFIXES = (".py", ".yaml", ".c", ".h")


def version_here() -> str:
    return __version__


def digest_here() -> str:
    """A digest of all source files and recipes of the package."""
    root = Path(__file__).resolve().parent.parent
    total = hashlib.sha256()
    for path in sorted(path for path in root.rglob("*") if path.suffix in _SUFFIXES):
        total.update(f"{path.relative_to(root)}\0{hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return total.hexdigest()[:16]
