"""Downloads over HTTP: resumed after an interruption, and retried when the connection is lost.

docs/log.md says why no library does this.
"""

import http.client
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.text import Text

from phalanx.atomic import PART
from phalanx.errors import UserError
from phalanx.observe.progress import megabytes

TIMEOUT_S = 30.0
PIECE_BYTES = 1 << 18
MAX_FAILURES = 4  # attempts in a row without new data
PAUSE_S = 1.0  # before the second attempt; doubled for each further one


class _Incomplete(Exception):
    """The connection ended before the file did."""


LOST = (_Incomplete, urllib.error.URLError, http.client.HTTPException, TimeoutError, ConnectionError, ssl.SSLError)


def download(console: Console, url: str, part: Path, size: int) -> None:
    """Download `url` (about `size` bytes) into the file `part`, after the bytes that it has already."""
    if not url.startswith(("http://", "https://")):
        raise UserError(
            f"{url} cannot be fetched", why="it does not begin with http:// or https://", remedy="check the address"
        )
    failures = 0
    with megabytes(console, f"fetching {part.name.removeprefix('.').removesuffix(PART)}", size) as advance:
        advance(_size(part))
        while True:
            before = _size(part)
            try:
                _receive(url, part, advance)
                return
            except urllib.error.HTTPError as error:
                trouble, final = f"the server answers {error.code} {error.reason}", 400 <= error.code < 500
            except LOST as error:
                trouble, final = str(getattr(error, "reason", None) or error) or type(error).__name__, False
            failures = 0 if _size(part) > before else failures + 1
            if final or failures >= MAX_FAILURES:
                raise _gave_up(url, part, trouble)
            console.print(Text(f"{url}: {trouble}; trying again after {_size(part):,} bytes"), soft_wrap=True)
            time.sleep(PAUSE_S * 2**failures / 2)


def _receive(url: str, part: Path, advance: Callable[[int], None]) -> None:
    """One attempt. A server without support for ranges sends the whole file, which then replaces `part`."""
    received_before = _size(part)
    request = urllib.request.Request(url, headers={"Range": f"bytes={received_before}-"} if received_before else {})
    try:
        response = urllib.request.urlopen(request, timeout=TIMEOUT_S)
    except urllib.error.HTTPError as error:
        if error.code != http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            raise
        if error.headers.get("Content-Range", "").rpartition("/")[2] == str(received_before):
            return  # the file is complete
        part.unlink()
        raise _Incomplete("the part that was fetched before is longer than the file; starting again") from error
    with response:
        resumed = response.status == http.HTTPStatus.PARTIAL_CONTENT
        if resumed and not response.headers.get("Content-Range", "").startswith(f"bytes {received_before}-"):
            part.unlink()
            raise _Incomplete("the server sent another range than the requested one; starting again")
        wanted = response.headers.get("Content-Length")
        received = 0
        with part.open("ab" if resumed else "wb") as file:
            while data := response.read(PIECE_BYTES):
                file.write(data)
                received += len(data)
                advance(len(data))
        if wanted is not None and received < int(wanted):
            raise _Incomplete(f"the connection ended after {received:,} of {int(wanted):,} bytes")


def _size(part: Path) -> int:
    return part.stat().st_size if part.exists() else 0


def _gave_up(url: str, part: Path, trouble: str) -> UserError:
    received_before = _size(part)
    return UserError(
        f"{url} could not be fetched",
        why=trouble,
        remedy="check the connection and run the command again"
        + (f", which goes on after the {received_before:,} bytes that have arrived" if received_before else "")
        + "; or download it by other means and give the copy with --from FILE",
    )
