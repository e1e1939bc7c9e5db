"""A file from the web, whole: resumed where it was interrupted, tried again where the connection is lost."""

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
MOST_FRUITLESS = 4  # attempts in a row that brought nothing new
PAUSE_S = 1.0  # before the second attempt; doubled for each one after


class _Incomplete(Exception):
    """The connection ended before the file did."""


LOST = (_Incomplete, urllib.error.URLError, http.client.HTTPException, TimeoutError, ConnectionError, ssl.SSLError)


def download(console: Console, url: str, part: Path, size: int) -> None:
    """All of `url` (about `size` bytes) in the file `part`, after what it holds already."""
    if not url.startswith(("http://", "https://")):
        raise UserError(
            f"{url} cannot be fetched", why="it begins neither with http:// nor https://", remedy="check the address"
        )
    fruitless = 0
    with megabytes(console, f"fetching {part.name.removeprefix('.').removesuffix(PART)}", size) as tell:
        tell(_held(part))
        while True:
            before = _held(part)
            try:
                _receive(url, part, tell)
                return
            except urllib.error.HTTPError as error:
                trouble, final = f"the server answers {error.code} {error.reason}", 400 <= error.code < 500
            except LOST as error:
                trouble, final = str(getattr(error, "reason", None) or error) or type(error).__name__, False
            fruitless = 0 if _held(part) > before else fruitless + 1
            if final or fruitless >= MOST_FRUITLESS:
                raise _gave_up(url, part, trouble)
            console.print(Text(f"{url}: {trouble}; trying again after {_held(part):,} bytes"), soft_wrap=True)
            time.sleep(PAUSE_S * 2**fruitless / 2)


def _receive(url: str, part: Path, tell: Callable[[int], None]) -> None:
    """One attempt. A server that cannot go on in the middle sends all of it, and then all of it is taken."""
    held = _held(part)
    request = urllib.request.Request(url, headers={"Range": f"bytes={held}-"} if held else {})
    try:
        response = urllib.request.urlopen(request, timeout=TIMEOUT_S)
    except urllib.error.HTTPError as error:
        if error.code != http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            raise
        if error.headers.get("Content-Range", "").rpartition("/")[2] == str(held):
            return  # there is nothing after what is here
        part.unlink()
        raise _Incomplete("what was fetched before is longer than the file; starting anew") from error
    with response:
        goes_on = response.status == http.HTTPStatus.PARTIAL_CONTENT
        if goes_on and not response.headers.get("Content-Range", "").startswith(f"bytes {held}-"):
            part.unlink()
            raise _Incomplete("the server sent another part of the file than it was asked for; starting anew")
        wanted = response.headers.get("Content-Length")
        received = 0
        with part.open("ab" if goes_on else "wb") as file:
            while data := response.read(PIECE_BYTES):
                file.write(data)
                received += len(data)
                tell(len(data))
        if wanted is not None and received < int(wanted):
            raise _Incomplete(f"the connection ended after {received:,} of {int(wanted):,} bytes")


def _held(part: Path) -> int:
    return part.stat().st_size if part.exists() else 0


def _gave_up(url: str, part: Path, trouble: str) -> UserError:
    held = _held(part)
    return UserError(
        f"{url} could not be fetched",
        why=trouble,
        remedy="check the connection and run the command again"
        + (f", which goes on after the {held:,} bytes that are here" if held else "")
        + "; or fetch it by other means and name the copy with --from FILE",
    )
