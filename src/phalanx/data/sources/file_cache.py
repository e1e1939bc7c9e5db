"""Files that Phalanx makes once and keeps: beside the data, or in the user's cache folder; whole or not at all."""

import contextlib
import fcntl
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console

from phalanx.native.build import cache_folder
from phalanx.observe.tables import print_line

BESIDE = ".phalanx"  # hidden, so that no reader takes it for data


def kept_beside(path: Path, ending: str) -> Path:
    return path.parent / BESIDE / (path.name + ending)


def kept_in_cache(path: Path, kind: str, ending: str = "") -> Path:
    """A place of its own for each path; the name is for people who look into the folder."""
    whole = os.fsencode(path.absolute())
    name = f"{hashlib.sha256(whole).hexdigest()[:20]}-{path.name[-60:]}{ending}"
    return cache_folder().parent / kind / name


def can_write_into(folder: Path) -> bool:
    """Makes the folder if need be. What nobody may write is left alone by the superuser, too."""
    try:
        there = folder if folder.exists() else folder.parent
        if there.exists() and not there.stat().st_mode & 0o222:
            return False
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(folder, os.W_OK | os.X_OK)


@contextlib.contextmanager
def one_at_a_time(folder: Path, what: str) -> Iterator[None]:
    """Lets one process at a time do `what`; the others wait and find it done. A process that dies lets go."""
    try:
        file = (folder / "lock").open("ab")
    except OSError:  # somebody else's folder: then each does it for itself, aside
        yield
        return
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print_line(Console(stderr=True), f"another process is {what}; waiting for it")
            fcntl.flock(file, fcntl.LOCK_EX)
        except OSError:  # a file system without locks
            yield
            return
        yield
