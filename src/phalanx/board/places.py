"""Which runs are shown: the folders that the user names, and the runs below them."""

import hashlib
import os
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from phalanx.errors import UserError
from phalanx.observe.history import History
from phalanx.runs.events import EVENTS_FILE
from phalanx.runs.fold_paths import FOLDS_FILE

# A folder with one of these is a run, perhaps one that has not begun or has lost its events.
MARKS = (EVENTS_FILE, "config.yaml", "job.json", "batch.json")
DEPTH = 3  # levels below a named folder: runs/EXPERIMENT/RUN/fold-1
NOT_RUNS = frozenset({"checkpoints", "logs", "eval", "export", "code"})
_KEPT = 8  # runs whose steps are held in memory


@dataclass(frozen=True)
class Place:
    """A run: a name for addresses, a name for people, and its folder."""

    key: str
    name: str
    path: Path
    host: str = ""  # where it was copied from; empty: here
    there: str = ""  # its folder on that host

    @property
    def shown_path(self) -> str:
        return f"{self.host}:{self.there}" if self.host else str(self.path)


@dataclass(frozen=True)
class Root:
    """A folder that the user named; `host` is where it is copied from."""

    path: Path
    host: str = ""
    there: str = ""  # the folder on that host

    @property
    def shown(self) -> str:
        return f"{self.host}:{self.there}" if self.host else str(self.path)


class Places:
    """The runs below the roots, found anew whenever they are listed. Thread-safe."""

    def __init__(self, roots: Sequence[Root]) -> None:
        self.roots = list(roots)
        self._lock = threading.Lock()
        self._found: dict[str, Place] = {}
        self._histories: dict[str, History] = {}

    def list(self) -> list[Place]:
        found = {place.key: place for place in self._find()}
        with self._lock:
            self._found = found
            self._histories = {key: one for key, one in self._histories.items() if key in found}
        return list(found.values())

    def get(self, key: str) -> Place | None:
        with self._lock:
            place = self._found.get(key)
        if place is None:  # perhaps it is new
            self.list()
            place = self._found.get(key)
        return place

    def history(self, place: Place) -> History:
        """What is known of a run's events. Steps of the runs looked at longest ago are forgotten."""
        with self._lock:
            found = self._histories.pop(place.key, None) or History(place.path)
            self._histories[place.key] = found  # the last one is the newest
            whole = [one for one in self._histories.values() if one.has_steps]
            for one in whole[:-_KEPT]:
                one.forget_steps()
        return found

    def _find(self) -> Iterator[Place]:
        seen = set()
        for root in self.roots:
            for path in runs_below(root.path):
                if path not in seen:
                    seen.add(path)
                    own = root.there.rpartition("/")[2] or path.name
                    shown = own if path == root.path else path.relative_to(root.path).as_posix()
                    key = hashlib.sha256(os.fsencode(path)).hexdigest()[:12]
                    below = "" if path == root.path else f"/{shown}"
                    yield Place(key, printable_name(shown), path, root.host, printable_name(root.there + below))


def runs_below(root: Path) -> Iterator[Path]:
    """Run folders at or below a folder. Links are not followed: they may lead anywhere."""

    def walk(folder: Path, depth: int) -> Iterator[Path]:
        try:
            with os.scandir(folder) as listing:
                entries = sorted(listing, key=lambda entry: entry.name)
        except OSError:
            return
        names = {entry.name for entry in entries}
        if names.intersection(MARKS) and FOLDS_FILE not in names:
            yield folder
            return
        for entry in entries:
            if depth and entry.name not in NOT_RUNS and not entry.name.startswith(".") and _is_folder(entry):
                yield from walk(folder / entry.name, depth - 1)

    yield from walk(root, DEPTH)


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir(follow_symlinks=False)
    except OSError:
        return False


def printable_name(name: str) -> str:
    """A file name as text that JSON can carry: bytes that are not UTF-8 become �."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def local_root(text: str) -> Root:
    """The folder that a user named."""
    path = Path(text).expanduser()
    if not path.is_dir():
        raise UserError(
            f"{text} cannot be shown",
            why="it is not a folder" if path.exists() else "there is no such folder",
            remedy="name a run's folder, or one with runs in it, such as runs/",
        )
    return Root(path.resolve())
