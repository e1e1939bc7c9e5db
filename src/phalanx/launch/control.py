"""Talking to a conductor from another terminal: a socket that only its user can open, a JSON line each way."""

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
    """Not in the run's folder: that may be too long a name for a socket, or on a disk that cannot hold one."""
    base = os.environ.get("XDG_RUNTIME_DIR", "")
    usable = base and os.access(base, os.W_OK | os.X_OK)
    folder = Path(base if usable else tempfile.gettempdir()) / f"phalanx-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    about = folder.lstat()
    if about.st_uid != os.getuid() or about.st_mode & 0o077:
        raise UserError(
            f"{folder} is not this user's alone",
            why="whoever can write there could stop this user's jobs",
            remedy="remove it, or set XDG_RUNTIME_DIR to a folder of your own (mode 700)",
        )
    return folder / f"{job}.sock"


@asynccontextmanager
async def answering(path: Path, answer: Answerer) -> AsyncIterator[None]:
    """Serve requests while entered."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, ValueError):
            told = answer(json.loads(await reader.readline()))
            writer.write(json.dumps(told).encode() + b"\n")
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


def ask(path: Path, request: dict[str, Any]) -> dict[str, Any] | None:
    """A conductor's answer; None where none is there any more."""
    try:
        with socket.socket(socket.AF_UNIX) as line:
            line.settimeout(_TIMEOUT_S)
            line.connect(str(path))
            line.sendall(json.dumps(request).encode() + b"\n")
            with line.makefile("rb") as stream:
                answer = json.loads(stream.readline())
    except (OSError, ValueError):
        return None
    return answer if isinstance(answer, dict) else None
