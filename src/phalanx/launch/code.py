"""The version of Phalanx and a digest of its files: hosts of a job compare them, because all must run the same code."""

import hashlib
from pathlib import Path

from phalanx import __version__

# Everything that decides results: modules, recipes, and native code with its headers. Not caches, notes and backups.
_COUNTED = (".py", ".yaml", ".c", ".cpp", ".h")


def version_here() -> str:
    return __version__


def digest_here() -> str:
    """The digest of the package that is running."""
    return digest_of(Path(__file__).resolve().parent.parent)


def digest_of(root: Path) -> str:
    """A digest of a package's folder: equal on two hosts if every source file and recipe in it is."""
    total = hashlib.sha256()
    for path in sorted(path for path in root.rglob("*") if path.suffix in _COUNTED):
        total.update(f"{path.relative_to(root)}\0{hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return total.hexdigest()[:16]
