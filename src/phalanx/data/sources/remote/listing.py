"""What a remote folder holds: names in order, sizes and versions. It is kept, so that processes of a job share it."""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from rich.console import Console

from phalanx.atomic import write_atomically
from phalanx.config.text import read_json
from phalanx.data.sources.remote.addresses import home_of, is_http, without_query
from phalanx.data.sources.remote.failures import Failure, explained, failure_of, reason_of
from phalanx.data.sources.remote.filesystem import RemoteFile, RemoteFiles
from phalanx.data.sources.remote.index_pages import files_below
from phalanx.data.sources.shards.file_cache import can_write_into, process_lock
from phalanx.errors import UserError
from phalanx.observe.progress import progress

FRESH_S = 300.0  # a listing that is younger is not made again: all processes of a job use the first one's
FILE = "listing.json"


@dataclass(frozen=True)
class RemoteListing:
    """The files below a folder, sorted by name; names are relative to it, and readable."""

    names: Sequence[str]
    paths: Sequence[str]  # as the file system calls them
    sizes: Sequence[int | None]
    versions: Sequence[str]
    notes: tuple[str, ...] = ()


def list_folder(url: str, options: Mapping[str, Any]) -> RemoteListing:
    """The listing of a folder. If the server cannot be reached, the last one is used, with a note."""
    home = cache_home(url)
    with process_lock(home, f"listing {url}"):
        kept = _kept(home)
        if kept is not None and 0 <= time.time() - kept[0] < FRESH_S:
            return kept[1]
        try:
            made = _made(url, options)
        except Exception as error:
            if kept is None or failure_of(error) not in (Failure.UNREACHABLE, Failure.TRANSIENT):
                with explained(url):
                    raise
            when = time.strftime("%Y-%m-%d %H:%M", time.localtime(kept[0]))
            note = f"{url} cannot be reached ({reason_of(error)}): its listing of {when} is used"
            return RemoteListing(kept[1].names, kept[1].paths, kept[1].sizes, kept[1].versions, (note,))
        _keep(home, made)
    return made


def cache_home(url: str) -> Path:
    """The folder for what is fetched from an address, made if need be."""
    try:
        home = home_of(url)
        why = "" if can_write_into(home) else f"{home} cannot be written"
    except RuntimeError as error:
        why = str(error)
    if why:
        raise UserError(
            f"{url} needs a folder to keep what is fetched",
            why=why,
            remedy="set XDG_CACHE_HOME to a folder with space",
        )
    return home


def _made(url: str, options: Mapping[str, Any]) -> RemoteListing:
    remote = RemoteFiles(url, options)
    with progress(Console(stderr=True), f"listing {url}:", 0) as advance:
        found = _files(url, remote, _difference(advance))
    base = without_query(url).rstrip("/") + "/" if is_http(url) else remote.path(url).rstrip("/") + "/"
    by_name: dict[str, tuple[str, RemoteFile]] = {}
    for path, file in found.items():
        name = path.removeprefix(base)
        if name and not name.endswith("/"):  # an empty object with such a name stands for a folder
            by_name[unquote(name) if is_http(url) else name] = (path, file)
    order = sorted(by_name, key=lambda name: name.encode("utf-8", "surrogateescape"))
    entries = [by_name[name] for name in order]
    return RemoteListing(
        order,
        [path for path, _ in entries],
        [file.size for _, file in entries],
        [file.version for _, file in entries],
    )


def _files(url: str, remote: RemoteFiles, advance: Callable[[int], None]) -> dict[str, RemoteFile]:
    if is_http(url):
        return files_below(without_query(url).rstrip("/") + "/", remote.page, advance)
    found = remote.find(remote.path(url))
    if not found:
        raise FileNotFoundError("no object's name begins so")
    return found


def _difference(advance: Callable[[int], None]) -> Callable[[int], None]:
    seen = 0

    def report(total: int) -> None:
        nonlocal seen
        advance(total - seen)
        seen = total

    return report


def _kept(home: Path) -> tuple[float, RemoteListing] | None:
    """(when it was made, the listing); None if there is none, or it is damaged."""
    try:
        found = read_json((home / FILE).read_bytes())
        columns = [found[key] for key in ("names", "paths", "sizes", "versions")]
        return float(found["made"]), RemoteListing(*columns)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _keep(home: Path, listing: RemoteListing) -> None:
    columns = {key: list(getattr(listing, key)) for key in ("names", "paths", "sizes", "versions")}
    with write_atomically(home / FILE) as file:
        file.write(json.dumps({"made": time.time(), **columns}).encode())
