"""Folders over http: the pages of links that nginx, Apache, Caddy or Python's server make of a folder."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from html.parser import HTMLParser
from typing import NamedTuple
from urllib.parse import unquote, urljoin, urlsplit, urlunsplit

from phalanx.data.sources.remote.filesystem import RemoteFile
from phalanx.errors import UserError

AT_ONCE = 16  # pages
MOST_FOLDERS = 200_000
DEEPEST = 16


class Link(NamedTuple):
    """A file or folder of a page: its address and name, and the text beside it (usually time and size)."""

    url: str
    name: str
    is_folder: bool
    about: str


class _Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, list[str]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        target = dict(attrs).get("href") if tag == "a" else None
        if target:
            self.found.append((target, []))

    def handle_data(self, data: str) -> None:
        if self.found and data.strip():
            self.found[-1][1].append(data.strip())


def links_of(page: str, url: str) -> list[Link]:
    """The files and folders directly in the folder of a page; other links, such as those that sort it, are left out."""
    parser = _Links()
    parser.feed(page)
    base, found = _bare(url), dict[str, Link]()
    for target, words in parser.found:
        try:
            address = _bare(urljoin(url, target))
        except ValueError:  # no address at all
            continue
        rest = address.removeprefix(base)
        name = unquote(rest.removesuffix("/"))
        if rest == address or not name or "/" in rest.removesuffix("/") or name in (".", ".."):
            continue
        found.setdefault(name, Link(address, name, rest.endswith("/"), " ".join(words)))
    return list(found.values())


def files_below(url: str, fetch: Callable[[str], bytes], advance: Callable[[int], None]) -> dict[str, RemoteFile]:
    """All files below a folder by their addresses, page by page. `advance` is told of files that were found."""
    files, level, num_folders = dict[str, RemoteFile](), [url], 0
    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="listing") as pool:
        for _ in range(DEEPEST):
            pages = pool.map(lambda address: (address, fetch(address)), level)
            level = []
            for address, page in pages:
                for link in links_of(page.decode("utf-8", "replace"), address):
                    if link.is_folder:
                        level.append(link.url)
                    else:
                        files[link.url] = RemoteFile(None, link.about)
                advance(len(files))
            num_folders += len(level)
            if not level or num_folders > MOST_FOLDERS:
                break
    if not files:
        raise UserError(
            f"{url} shows no files",
            why="a folder over http is read by the page of links that its server makes of it, and there are none",
            remedy="turn on the server's index pages; or name files, such as https://HOST/train.tar or "
            "'https://HOST/train-{000..009}.tar'",
        )
    return files


def _bare(url: str) -> str:
    """An address without query and fragment."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc, parts.path, "", ""))
