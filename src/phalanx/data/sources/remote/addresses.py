"""Addresses of remote data: `s3://bucket/flowers/`, `https://host/train.tar`, `gs://bucket/shards/train-{000..009}.tar`."""

import hashlib
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote, urlsplit

from phalanx.data.sources.shards.find_files import RANGE
from phalanx.errors import UserError
from phalanx.native.build import cache_folder

_ADDRESS = re.compile(r"([A-Za-z][\w+.-]+)://.+", re.DOTALL)
_FLATTENED = re.compile(r"^([A-Za-z][\w+.-]+):/+")
OURS_ELSEWHERE = ("hf", "file")  # Hugging Face's names, and paths


def is_remote(text: str) -> bool:
    """Whether a text is an address of remote data."""
    found = _ADDRESS.fullmatch(text)
    return found is not None and scheme_of(text) not in OURS_ELSEWHERE


def scheme_of(url: str) -> str:
    return url.partition("://")[0].lower()


def is_http(url: str) -> bool:
    return scheme_of(url) in ("http", "https")


def url_of(path: Path) -> str:
    """The address that was made a path, which has only one slash after its colon."""
    return _FLATTENED.sub(r"\1://", str(path))


def as_address(text: str, path: Path) -> str:
    """A text with the address in place of the path that was made of it."""
    return text.replace(str(path), url_of(path))


@contextmanager
def shown_as_address(path: Path) -> Iterator[None]:
    """Have errors name the address in place of the path that was made of it."""
    try:
        yield
    except UserError as error:
        what, why, remedy = (as_address(text, path) for text in (error.what, error.why, error.remedy))
        raise UserError(what, why=why, remedy=remedy) from error


def is_remote_pattern(url: str) -> bool:
    """Whether an address names several files. A question mark is no pattern, but begins a query."""
    return RANGE.search(url) is not None or "*" in url


def last_part(url: str) -> str:
    """The file or folder that an address names, readable."""
    path = urlsplit(url).path if is_http(url) else url.partition("://")[2]
    return unquote(path.rstrip("/").rpartition("/")[2]) or urlsplit(url).netloc


def without_query(url: str) -> str:
    """The address without what may change from day to day, such as the signature of a signed one."""
    return url.partition("?")[0] if is_http(url) else url


def home_of(url: str) -> Path:
    """The folder in the user's cache for what is fetched from an address. Raises RuntimeError without a home folder."""
    whole = hashlib.sha256(without_query(url).rstrip("/").encode()).hexdigest()[:16]
    name = re.sub(r"[^\w.-]+", "-", last_part(url))[-40:]
    return cache_folder().parent / "remote" / f"{whole}-{name}"
