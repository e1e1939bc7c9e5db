"""Files that Phalanx makes once and caches: beside the data, or in the user's cache folder."""

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


def path_beside(path: Path, ending: str) -> Path:
    return path.parent / BESIDE / (path.name + ending)


def path_in_cache(path: Path, kind: str, ending: str = "") -> Path:
    """A unique path in the cache for each path; it ends in the file's name, for people who look into the folder."""
    whole = os.fsencode(path.absolute())
    name = f"{hashlib.sha256(whole).hexdigest()[:20]}-{path.name[-60:]}{ending}"
    return cache_folder().parent / kind / name


def can_write_into(folder: Path) -> bool:
    """Whether files can be written into a folder, which is made if need be. Read-only folders count for root, too."""
    try:
        there = folder if folder.exists() else folder.parent
        if there.exists() and not there.stat().st_mode & 0o222:
            return False
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(folder, os.W_OK | os.X_OK)


@contextlib.contextmanager
def process_lock(folder: Path, what: str) -> Iterator[None]:
    """A lock over processes: one does `what`, the others wait and find it done. A process that dies releases it."""
    try:
        file = (folder / "lock").open("ab")
    except OSError:  # a folder without permission: then each process does the work by itself
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
