"""A remote folder as a folder: images are fetched when they are needed, many at a time, and kept on this machine."""

import json
import os
import time
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from threading import Lock
from typing import Any
from weakref import WeakValueDictionary

from phalanx.data.sources.archives.name_tree import NameTree
from phalanx.data.sources.folders import Listing, Names, Storage
from phalanx.data.sources.remote import listing
from phalanx.data.sources.remote.addresses import url_of
from phalanx.data.sources.remote.failures import reason_of
from phalanx.data.sources.remote.filesystem import RemoteFiles
from phalanx.data.sources.remote.objects import ObjectStore

_open = WeakValueDictionary[str, "RemoteStorage"]()
_opening = Lock()
MOST_WAITING = 8192  # images that were fetched and not read yet
AT_ONCE = 32  # images that are fetched at the same time: a thread waits for the network nearly all of the time


def open_remote(url: str, options: Mapping[str, Any], cache_gb: float | None) -> "RemoteStorage":
    """The storage of an address. The splits of a dataset share one, and with it one listing."""
    key = json.dumps([url, dict(options), cache_gb], sort_keys=True, default=str)
    with _opening:
        found = _open.get(key)
        if found is None or time.monotonic() - found.opened_at >= listing.FRESH_S:
            found = _open[key] = RemoteStorage(url, options, cache_gb)
        return found


class RemoteStorage(Storage):
    """The files below a remote folder, as `folders.Storage`. Paths begin with the address, made a path."""

    def __init__(self, url: str, options: Mapping[str, Any], cache_gb: float | None) -> None:
        self.root, self._url, self._options = Path(url), url, options
        self.opened_at = time.monotonic()
        self._listing = listing.list_folder(url, options)
        self.notes = self._listing.notes
        names = [os.fsencode(name) for name in self._listing.names]
        self._names, self._tree = Names(names), NameTree(self.root, names)
        most_bytes = None if cache_gb is None else int(cache_gb * 1e9)
        self._store = ObjectStore(listing.cache_home(url) / "objects", most_bytes)
        self._remote: RemoteFiles | None = None
        self._pool = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="fetch")
        self._coming: dict[int, Future[bytes]] = {}
        self._lock = Lock()

    def look(self, folder: Path, *, until_image: bool = False) -> Listing:
        return self._tree.look(folder)

    def name(self, path: bytes) -> str:
        return url_of(Path(os.fsdecode(path)))

    def stamp(self, path: bytes) -> str:
        return self._key(self._number(path))

    def prepare(self, paths: Sequence[bytes]) -> None:
        """Begin to fetch files that will be read soon."""
        numbers = [self._number(path) for path in paths]
        missing = [number for number in numbers if not self._store.holds(self._key(number))]
        with self._lock:
            for number in missing:
                if number not in self._coming:
                    self._coming[number] = self._pool.submit(self._fetch, number)
            while len(self._coming) > MOST_WAITING:  # of a batch that was given up
                del self._coming[next(iter(self._coming))]

    def read(self, path: bytes) -> bytes:
        number = self._number(path)
        with self._lock:
            coming = self._coming.pop(number, None)
        if coming is None and (data := self._store.read(self._key(number))) is not None:
            return data
        try:
            return self._fetch(number) if coming is None else coming.result()
        except OSError:
            raise
        except Exception as error:  # each library has its own
            raise OSError(reason_of(error)) from error

    def _fetch(self, number: int) -> bytes:
        with self._lock:
            self._remote = self._remote or RemoteFiles(self._url, self._options)
        data = self._remote.read(self._listing.paths[number], self._listing.sizes[number])
        self._store.write(self._key(number), data)
        return data

    def _key(self, number: int) -> str:
        return f"{self._listing.names[number]}\0{self._listing.sizes[number]}\0{self._listing.versions[number]}"

    def _number(self, path: bytes) -> int:
        name = path.removeprefix(os.fsencode(self.root)).lstrip(b"/")
        number = bisect_left(self._names, name)
        if number == len(self._names) or self._names[number] != name:
            raise FileNotFoundError(2, "there is no such file at the remote location", os.fsdecode(path))
        return number
