"""The file systems of fsspec: S3, GCS, http, and whatever else is installed."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO

from phalanx.data.sources.remote.addresses import is_http, scheme_of
from phalanx.data.sources.remote.failures import Incomplete, attempted
from phalanx.errors import UserError

PIECE = 8 << 20
SILENCE_S = 60.0  # after which a connection counts as lost
PACKAGES = {**dict.fromkeys(("http", "https"), "aiohttp"), **dict.fromkeys(("s3", "s3a"), "s3fs")} | dict.fromkeys(
    ("gs", "gcs"), "gcsfs"
)
VERSION_KEYS = ("ETag", "etag", "md5Hash", "generation", "LastModified", "updated", "Last-Modified", "mtime")


@dataclass(frozen=True)
class RemoteFile:
    """A file at a remote location: its size if that is known, and what changes when it changes."""

    size: int | None
    version: str
    is_folder: bool = False
    kind: str = ""  # its media type, over http


class RemoteFiles:
    """A file system, with attempts that are repeated. Threads may share it."""

    def __init__(self, url: str, options: Mapping[str, Any]) -> None:
        self.url = url
        self._fs = _filesystem(url, options)

    def path(self, url: str) -> str:
        """How the file system calls an address."""
        return url if is_http(url) else str(self._fs._strip_protocol(url))

    def about(self, path: str) -> RemoteFile:
        return file_of(attempted(lambda: self._fs.info(path), opening=True))

    def page(self, url: str) -> bytes:
        """A page of a folder over http."""
        return bytes(attempted(lambda: self._fs.cat_file(url), opening=True))

    def read(self, path: str, size: int | None = None) -> bytes:
        """A small file as a whole. With `size`, fewer bytes are an error that is tried again."""

        def fetch() -> bytes:
            data = bytes(self._fs.cat_file(path))
            if size is not None and len(data) != size:
                raise Incomplete(f"{len(data):,} of {size:,} bytes came")
            return data

        return attempted(fetch)

    def copy(self, path: str, out: BinaryIO, size: int | None, advance: Any) -> None:
        """Write a large file, going on after a lost connection from where it was."""
        if is_http(path):
            attempted(lambda: self._stream(path, out, size, advance))
            return
        done = 0
        while size is None or done < size:
            piece = self._piece(path, done, size)
            out.write(piece)
            advance(len(piece))
            done += len(piece)
            if len(piece) < PIECE:
                break

    def _piece(self, path: str, start: int, size: int | None) -> bytes:
        end = start + PIECE if size is None else min(start + PIECE, size)

        def fetch() -> bytes:
            data = bytes(self._fs.cat_file(path, start=start, end=end))
            if size is not None and len(data) != end - start:
                raise Incomplete(f"{len(data):,} of {end - start:,} bytes came")
            return data

        return attempted(fetch)

    def _stream(self, url: str, out: BinaryIO, size: int | None, advance: Any) -> None:
        """One answer over http, from the bytes on that are there already, if the server can do that."""
        from aiohttp import ClientTimeout
        from fsspec.asyn import sync

        patience = ClientTimeout(total=None, sock_connect=SILENCE_S, sock_read=SILENCE_S)

        async def receive() -> None:
            session = await self._fs.set_session()
            start = out.tell()
            headers = dict(self._fs.kwargs.get("headers", {}))
            headers |= {"Accept-Encoding": "identity"} | ({"Range": f"bytes={start}-"} if start else {})
            others = {key: value for key, value in self._fs.kwargs.items() if key != "headers"}
            async with session.get(self._fs.encode_url(url), headers=headers, timeout=patience, **others) as answer:
                answer.raise_for_status()
                if start and answer.status != 206:
                    advance(-start)
                    out.seek(0)
                    out.truncate()
                async for piece in answer.content.iter_chunked(1 << 20):
                    out.write(piece)
                    advance(len(piece))

        sync(self._fs.loop, receive)
        if size is not None and out.tell() != size:
            raise Incomplete(f"{out.tell():,} of {size:,} bytes came")

    def find(self, path: str) -> dict[str, RemoteFile]:
        """All files below a folder of a bucket, by their paths."""
        found = attempted(lambda: self._fs.find(path, detail=True, refresh=True), opening=True)
        return {name: file_of(info) for name, info in found.items()}


def file_of(info: Mapping[str, Any]) -> RemoteFile:
    size = info.get("size")
    version = " ".join(f"{info[key]}" for key in VERSION_KEYS if info.get(key))
    is_folder, kind = info.get("type") == "directory", str(info.get("mimetype", ""))
    return RemoteFile(int(size) if size is not None else None, version, is_folder, kind)


def _filesystem(url: str, options: Mapping[str, Any]) -> Any:
    scheme = scheme_of(url)
    try:
        import fsspec

        return fsspec.filesystem(scheme, **{"use_listings_cache": False, **options})
    except (ImportError, ValueError) as error:
        known = isinstance(error, ImportError)
        package = PACKAGES.get(scheme, "fsspec") if known else ""
        raise UserError(
            f"{url} cannot be opened" + (f": {package} is not installed" if package else ""),
            why=f"remote data is read through fsspec: {str(error)[:200]}",
            remedy="pip install 'phalanx[remote]'"
            if scheme in PACKAGES
            else f"install fsspec's package for {scheme}://",
        ) from error
    except TypeError as error:
        raise UserError(
            f"{url} cannot be opened with data.remote_options={dict(options)}",
            why=str(error)[:200],
            remedy=f"give options that fsspec's file system for {scheme}:// takes",
        ) from error
