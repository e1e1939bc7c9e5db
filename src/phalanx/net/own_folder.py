"""Sockets in folders: who is at the other end is known by the folder alone, so nobody else may put a socket there."""

import os
from pathlib import Path

from phalanx.errors import UserError

_SCHEME = "ipc://"


def refuse_shared_folder(address: str) -> None:
    """Refuse an ipc address where another user could be at the other end, or come to be."""
    if not address.startswith(_SCHEME):
        return
    path = address.removeprefix(_SCHEME)
    if why := _shared(path):
        raise UserError(
            f"other users of this machine can listen at {address}",
            why=f"{why}; a socket in a folder needs no key, because only its user reaches it",
            remedy="name a path in a folder that only you can write to (mkdir -m 700 FOLDER), or HOST:PORT",
        )


def _shared(path: str) -> str:
    """Why others can put a socket at a path; empty if they cannot."""
    if path.startswith("@"):
        return "it is a name of Linux that is in no folder"
    folder = next(each for each in Path(path).absolute().parents if each.exists())
    found = folder.stat()
    if found.st_uid not in (os.geteuid(), 0):
        return f"{folder} belongs to another user"
    return f"{folder} can be changed by other users" if found.st_mode & 0o022 else ""
