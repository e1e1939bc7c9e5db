"""Requests to a running supervisor, for `phalanx status` and `stop`: a Unix socket of its user, one JSON line each."""

import asyncio
import contextlib
import json
import os
import socket
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from phalanx.errors import UserError

_TIMEOUT_S = 10.0
Answerer = Callable[[dict[str, Any]], dict[str, Any]]


def socket_path(job: str) -> Path:
    """The socket of a job. Not in the run folder, whose path may be too long, or on a disk without sockets."""
    base = os.environ.get("XDG_RUNTIME_DIR", "")
    usable = base and os.access(base, os.W_OK | os.X_OK)
    folder = Path(base if usable else tempfile.gettempdir()) / f"phalanx-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    about = folder.lstat()
    if about.st_uid != os.getuid() or about.st_mode & 0o077:
        raise UserError(
            f"other users have access to {folder}",
            why="other users could stop your jobs",
            remedy="remove it, or set XDG_RUNTIME_DIR to a folder of your own (mode 700)",
        )
    return folder / f"{job}.sock"


@asynccontextmanager
async def serve_control(path: Path, answer: Answerer) -> AsyncIterator[None]:
    """Answer requests while the context is open."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, ValueError):
            reply = answer(json.loads(await reader.readline()))
            writer.write(json.dumps(reply).encode() + b"\n")
            await writer.drain()
        writer.close()

    before = os.umask(0o177)
    try:
        server = await asyncio.start_unix_server(serve, path)
    finally:
        os.umask(before)
    try:
        yield
    finally:
        server.close()
        path.unlink(missing_ok=True)


def send_request(path: Path, request: dict[str, Any]) -> dict[str, Any] | None:
    """The supervisor's reply; None if it is gone."""
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(_TIMEOUT_S)
            connection.connect(str(path))
            connection.sendall(json.dumps(request).encode() + b"\n")
            with connection.makefile("rb") as stream:
                reply = json.loads(stream.readline())
    except (OSError, ValueError):
        return None
    return reply if isinstance(reply, dict) else None
