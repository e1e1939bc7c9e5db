"""The job's secret key: from PHALANX_KEY, or from the file that PHALANX_KEY_FILE names; on one machine, the user's."""

import os
import secrets
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

from phalanx.atomic import write_atomically
from phalanx.config.role import Environment
from phalanx.errors import UserError
from phalanx.net.interfaces import is_loopback


def key_of(environment: Environment) -> str:
    """The job's secret: PHALANX_KEY, or the contents of the file PHALANX_KEY_FILE; empty where neither is set."""
    file = environment.get("PHALANX_KEY_FILE")
    if environment.get("PHALANX_KEY") or not file:
        return environment.get("PHALANX_KEY", "")
    return read_key(Path(file))


def key_for(addresses: Iterable[str], key: str) -> str:
    """The key for these addresses: the job's; without one, the user's own where all are of this machine's loopback.

    Other users of this machine reach its loopback, too.
    """
    hosts = [parts.hostname or "" for each in addresses if (parts := urlsplit(each)).scheme == "tcp"]
    return key or (user_key() if hosts and all(map(is_loopback, hosts)) else "")


def user_key() -> str:
    """The key of processes that this user starts on this machine without one; made when it is first needed."""
    try:
        folder = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "phalanx"
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except (OSError, RuntimeError) as error:  # in a container the user may have no home
        raise UserError(
            "there is no place for a key",
            why=f"other users of this machine could join the job; {error}",
            remedy="set PHALANX_KEY to the same secret for all processes of the job, or XDG_STATE_HOME to a folder",
        ) from error
    return own_key(folder / "key")


def own_key(file: Path) -> str:
    """The key in a file. A missing file is created with a new key, readable by its owner only."""
    try:
        if not file.exists():
            # If another process is faster, its key stays.
            with suppress(FileExistsError), write_atomically(file, mode=0o600, overwrite=False) as out:
                out.write(secrets.token_hex(32).encode() + b"\n")
    except OSError as error:
        raise UserError(
            f"cannot create the key file {file}",
            why=error.strerror or str(error),
            remedy="name a writable path, or set PHALANX_KEY",
        ) from error
    return read_key(file)


def read_key(file: Path) -> str:
    """The secret in a file."""
    try:
        found = file.stat()
        mode, owner = found.st_mode & 0o777, found.st_uid
        key = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(
            f"the key cannot be read from {file}",
            why=getattr(error, "strerror", None) or str(error),
            remedy="name a file that every host sees, made once: (umask 077; openssl rand -hex 32 > FILE)",
        ) from error
    if mode & 0o077:
        raise UserError(
            f"other users can read or change the key in {file}",
            why=f"its mode is {mode:o}, and whoever has the key can join the job",
            remedy=f"chmod 600 {file} (a Kubernetes secret: defaultMode: 0400)",
        )
    if owner not in (os.geteuid(), 0):
        raise UserError(
            f"the key in {file} is another user's",
            why=f"its owner is the user {owner}, who can read and change it",
            remedy=f"make one of your own: (umask 077; openssl rand -hex 32 > {file})",
        )
    if not key:
        raise UserError(
            f"{file} is empty", why="it is to hold the key", remedy=f"openssl rand -hex 32 > {file}; chmod 600 {file}"
        )
    return key
