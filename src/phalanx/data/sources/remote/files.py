"""Whole files from a remote location: fetched before they are used, into a folder that looks like the remote one."""

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from threading import Lock
from typing import Any

from rich.console import Console

from phalanx.atomic import write_atomically, write_text_atomically
from phalanx.config.text import read_json
from phalanx.data.sources.remote.failures import Failure, explained, failure_of, reason_of
from phalanx.data.sources.remote.filesystem import RemoteFiles
from phalanx.data.sources.remote.listing import cache_home
from phalanx.data.sources.remote.objects import RESERVE
from phalanx.data.sources.shards.file_cache import process_lock
from phalanx.data.sources.stamp import Stamp
from phalanx.errors import UserError
from phalanx.observe.progress import megabytes
from phalanx.observe.tables import print_line

AT_ONCE = 4  # files


@dataclass(frozen=True)
class Wanted:
    """A file to fetch: its name in the folder, and how the file system calls it."""

    name: str
    path: str


@dataclass(frozen=True)
class Copy:
    """What is known of a file that was fetched: enough to see that it changed."""

    size: int
    version: str


def fetch_files(url: str, files: Sequence[Wanted], options: Mapping[str, Any]) -> Path:
    """The folder with copies of these files. Those that are there and have not changed are not fetched again."""
    home = cache_home(url)
    folder = home / "files"
    _refuse_strange(url, files)
    with process_lock(home, f"downloading {url}"), explained(url):
        remote = RemoteFiles(url, options)
        try:
            missing = _missing(remote, home, files)
        except Exception as error:
            if failure_of(error) not in (Failure.UNREACHABLE, Failure.TRANSIENT) or not _all_there(home, files):
                raise
            said = f"{url} cannot be reached ({reason_of(error)}): the copy in {folder} is used"
            print_line(Console(stderr=True), said)
            return folder
        total = sum(copy.size for _, copy in missing if copy.size > 0)
        if missing:
            folder.mkdir(parents=True, exist_ok=True)
            _refuse_full_disk(url, folder, total)
            what = missing[0][0].name if len(missing) == 1 else f"{len(missing):,} files"
            with megabytes(Console(stderr=True), f"downloading {what} to {folder}", total) as advance:
                _fetch_all(remote, home, missing, advance)
    return folder


def _missing(remote: RemoteFiles, home: Path, files: Sequence[Wanted]) -> list[tuple[Wanted, Copy]]:
    with ThreadPoolExecutor(AT_ONCE) as pool:
        found = list(pool.map(lambda file: remote.about(file.path), files))
    copies = [Copy(-1 if about.size is None else about.size, about.version) for about in found]
    return [(file, copy) for file, copy in zip(files, copies, strict=True) if _kept(home, file) != copy]


def _fetch_all(
    remote: RemoteFiles, home: Path, missing: Sequence[tuple[Wanted, Copy]], advance: Callable[[int], None]
) -> None:
    lock = Lock()

    def count(number: int) -> None:
        with lock:
            advance(number)

    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="download") as pool:
        list(pool.map(partial(_fetch, remote, home, count), missing))


def _fetch(remote: RemoteFiles, home: Path, advance: Callable[[int], None], wanted: tuple[Wanted, Copy]) -> None:
    file, copy = wanted
    target, note = home / "files" / file.name, _note(home, file)
    target.parent.mkdir(parents=True, exist_ok=True)
    note.parent.mkdir(parents=True, exist_ok=True)
    note.unlink(missing_ok=True)
    with write_atomically(target) as out:
        remote.copy(file.path, out, copy.size if copy.size >= 0 else None, advance)
    write_text_atomically(note, json.dumps(asdict(copy) | {"bytes": Stamp.of(target).size}))


def _kept(home: Path, file: Wanted) -> Copy | None:
    """What was noted of a copy, if it is there as it was written."""
    try:
        noted = read_json(_note(home, file).read_bytes())
        whole = Stamp.of(home / "files" / file.name).size == noted["bytes"]
        return Copy(int(noted["size"]), str(noted["version"])) if whole else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _all_there(home: Path, files: Sequence[Wanted]) -> bool:
    return all(_kept(home, file) is not None for file in files)


def _note(home: Path, file: Wanted) -> Path:
    return home / "noted" / f"{file.name}.json"


def _refuse_full_disk(url: str, folder: Path, needed: int) -> None:
    free = shutil.disk_usage(folder).free
    if free < needed + RESERVE:
        raise UserError(
            f"there is no space for the files of {url}",
            why=f"{folder} has {free / 1e9:.1f} GB left, {needed / 1e9:.1f} GB are needed, and 1 GB stays free",
            remedy="make space, or set XDG_CACHE_HOME to a folder with space",
        )


def _refuse_strange(url: str, files: Sequence[Wanted]) -> None:
    """Refuse names that would be written elsewhere."""
    for file in files:
        parts = PurePosixPath(file.name).parts
        if not parts or ".." in parts or file.name.startswith("/"):
            raise UserError(
                f"{url} holds a file called {file.name!r}",
                why="its copy would be outside of the cache",
                remedy="rename it",
            )
