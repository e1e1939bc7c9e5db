"""The version of Phalanx and a digest of its files. Processes of a job compare them: all must run the same code.

A process computes its digest once, when it starts: files that change later are not what it runs.
"""

import functools
import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from phalanx import __version__
from phalanx.errors import UserError
from phalanx.net.waiting import here

# Everything that decides results: modules, recipes, and native code with its headers. Not caches, notes and backups.
_COUNTED = (".py", ".yaml", ".c", ".cpp", ".h")
_PACKAGE = Path(__file__).resolve().parent.parent
_FIELDS = ("process", "host", "place", "version", "digest")


def version_here() -> str:
    return __version__


@functools.cache
def digest_here() -> str:
    """The digest of the package that is running. It takes about 10 ms: no file remembers it."""
    return digest_of(_PACKAGE)


def digest_of(root: Path) -> str:
    """A digest of a package's folder: equal on two hosts if every source file and recipe in it is."""
    total = hashlib.sha256()
    for name in sorted(_counted(f"{root}/", "")):
        with open(f"{root}/{name}", "rb", buffering=0) as file:  # noqa: PTH123 - paths as objects take twice the time
            content = file.read()
        total.update(f"{name}\0{len(content)}\n".encode())
        total.update(content)
    return total.hexdigest()[:16]


def _counted(root: str, folder: str) -> Iterator[str]:
    """The names of the files that count, relative to the root."""
    with os.scandir(root + folder) as entries:
        for entry in entries:
            if entry.is_dir():
                yield from _counted(root, f"{folder}{entry.name}/")
            elif entry.name.endswith(_COUNTED):
                yield folder + entry.name


@dataclass(frozen=True)
class CodeReport:
    """Which code a process runs, for comparison with the others."""

    process: str
    host: str
    place: str  # the folder of the package
    version: str
    digest: str

    @classmethod
    def of(cls, process: str) -> "CodeReport":
        """Of this process."""
        return cls(process, here(), str(_PACKAGE), version_here(), digest_here())

    @classmethod
    def from_data(cls, data: Any, process: str) -> "CodeReport":
        """What another process sent. An earlier version may send nothing: then `process` names it."""
        known = data if isinstance(data, Mapping) else {"process": process}
        return cls(**{name: str(known.get(name, "unknown")) for name in _FIELDS})

    def to_data(self) -> dict[str, str]:
        return asdict(self)

    def __str__(self) -> str:
        return f"{self.process} on {self.host} has phalanx {self.version}, code {self.digest} ({self.place})"


def other_code(mine: CodeReport, other: CodeReport) -> UserError | None:
    """The error about two processes that run different code."""
    if (other.version, other.digest) == (mine.version, mine.digest):
        return None
    return UserError(
        f"two versions of phalanx are in this job: {mine}; {other}",
        why="a step's result would depend on which process computes it",
        remedy="install the same version for both, or have phalanx launch send this one: --sync-dst-dir DIR, from the "
        "checkout",
    )


def refuse_other_code(mine: CodeReport, others: Iterable[CodeReport]) -> None:
    """Refuse to work with a process that runs other code: a run's result would depend on who computes what."""
    for other in others:
        if error := other_code(mine, other):
            raise error
