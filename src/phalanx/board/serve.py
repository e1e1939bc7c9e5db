"""Listens, prints the address, and serves until it is interrupted."""

import contextlib
import socket
import threading
from collections.abc import Sequence

import uvicorn
from rich.console import Console
from rich.text import Text

from phalanx.board.app import Tools, make_app
from phalanx.board.guard import Guard, is_loopback
from phalanx.board.places import Places, Root
from phalanx.board.rows import row_of
from phalanx.errors import UserError


def serve(console: Console, roots: Sequence[Root], *, host: str, port: int, tools: Tools) -> None:
    """Show the runs below these folders until Ctrl-C."""
    listener = _listen(host, port)
    port = listener.getsockname()[1]
    guard = Guard(host, port)
    places = Places(roots)
    shown = socket.gethostname() if host in ("0.0.0.0", "::") else host
    found = len(places.list())
    _print(console, f"{found} run{'s' * (found != 1)} in {', '.join(root.shown for root in roots)}")
    if not is_loopback(host):
        _print(console, f"warning: anyone who reaches {shown} and has this address can look; it is not encrypted")
    if tools.stop is not None:
        _print(console, "with --control: whoever has this address can stop jobs")
    address = f"[{shown}]" if ":" in shown else shown
    _print(console, f"http://{address}:{port}/?token={guard.token}")
    _print(console, "Ctrl-C ends it; runs are not touched")
    console.file.flush()
    threading.Thread(target=_read_all, args=(places,), name="first look", daemon=True).start()
    app = make_app(places, guard, tools)
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        server_header=False,
        ws="none",
        lifespan="off",
        timeout_keep_alive=30,
    )
    with listener, contextlib.suppress(KeyboardInterrupt):
        uvicorn.Server(config).run(sockets=[listener])


def _read_all(places: Places) -> None:
    """While the user opens the page: of 200 runs it takes seconds, the first time."""
    for place in places.list():
        with contextlib.suppress(OSError):  # it goes away
            row_of(place, places.history(place))


def _listen(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 is any that is free."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(128)
    except (OSError, OverflowError) as error:
        raise UserError(
            f"the board cannot listen at {host}:{port}",
            why=(error.strerror if isinstance(error, OSError) else None) or str(error),
            remedy="leave --port out for one that is free, or name an address of this machine with --host",
        ) from error
    return listener


def _print(console: Console, text: str) -> None:
    console.print(Text(text), soft_wrap=True)
