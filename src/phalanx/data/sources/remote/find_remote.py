"""What an address names: one file, several, a folder of such files, or a folder of images."""

from collections.abc import Mapping
from fnmatch import fnmatch
from pathlib import Path
from typing import Any
from urllib.parse import quote

from phalanx.data.sources.folders import IMAGE_ENDINGS
from phalanx.data.sources.remote.addresses import is_http, is_remote_pattern, last_part, without_query
from phalanx.data.sources.remote.failures import explained
from phalanx.data.sources.remote.files import Wanted, fetch_files
from phalanx.data.sources.remote.filesystem import RemoteFiles
from phalanx.data.sources.remote.listing import RemoteListing, list_folder
from phalanx.data.sources.shards.find_files import each_number
from phalanx.errors import UserError

HIDDEN = (".", "_")  # how the names of files begin that are not data, as _SUCCESS


def local_copy(url: str, options: Mapping[str, Any]) -> Path | None:
    """The path of a copy of the file, the files or the folder at an address; None for a folder of images.

    Images of a folder are not fetched here, but when they are needed.
    """
    if is_remote_pattern(url):
        return _pattern(url, options)
    if not _is_folder(url, options):
        parent, name = without_query(url).rpartition("/")[0], last_part(url)
        path = url if is_http(url) else RemoteFiles(url, options).path(url)
        return fetch_files(parent, [Wanted(name, path)], options) / name
    listing = list_folder(url, options)
    if any(_is_image(name) for name in listing.names):
        return None
    files = [Wanted(*pair) for pair in zip(listing.names, listing.paths, strict=True) if _is_data(pair[0])]
    if not files:
        raise UserError(
            f"{url} holds no data",
            why=f"it lists {len(listing.names):,} files: {_some(listing)}",
            remedy="name a folder with class folders or with data files, or one file",
        )
    return fetch_files(url, files, options)


def _pattern(url: str, options: Mapping[str, Any]) -> Path:
    """The files of a range or glob, which only the last part of an address may be."""
    parent, _, pattern = url.rpartition("/")
    if is_remote_pattern(parent):
        raise UserError(
            f"{url} has a pattern in the name of a folder",
            why="a pattern of remote files is in their names alone",
            remedy="name one folder, such as s3://BUCKET/FOLDER/train-{000..127}.tar",
        )
    names, remote = each_number(pattern), RemoteFiles(url, options)
    if "*" in pattern:
        listing = list_folder(parent, options)
        found = {name for wanted in names for name in listing.names if fnmatch(name, wanted) and "/" not in name}
        names = sorted(found)
        if not names:
            raise UserError(f"no file matches {url}", why=f"there are {_some(listing)}", remedy="check the pattern")
    paths = [f"{parent}/{quote(name)}" if is_http(url) else remote.path(f"{parent}/{name}") for name in names]
    folder = fetch_files(parent, [Wanted(*pair) for pair in zip(names, paths, strict=True)], options)
    return folder / pattern


def _is_folder(url: str, options: Mapping[str, Any]) -> bool:
    if url.endswith("/"):
        return True
    remote = RemoteFiles(url, options)
    with explained(url):
        about = remote.about(url if is_http(url) else remote.path(url))
    return about.is_folder or about.kind == "text/html"


def _is_image(name: str) -> bool:
    return name.encode("utf-8", "surrogateescape").lower().endswith(IMAGE_ENDINGS)


def _is_data(name: str) -> bool:
    return not any(part.startswith(HIDDEN) for part in name.split("/"))


def _some(listing: RemoteListing) -> str:
    return ", ".join(listing.names[:5]) + (" …" if len(listing.names) > 5 else "")
