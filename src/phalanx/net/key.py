"""The job's secret key: from PHALANX_KEY, or from the file that PHALANX_KEY_FILE names."""

from pathlib import Path

from phalanx.config.role import Environment
from phalanx.errors import UserError


def key_of(environment: Environment) -> str:
    """The job's secret: PHALANX_KEY, or the contents of the file PHALANX_KEY_FILE; empty where neither is set."""
    file = environment.get("PHALANX_KEY_FILE")
    if environment.get("PHALANX_KEY") or not file:
        return environment.get("PHALANX_KEY", "")
    return read_key(Path(file))


def read_key(file: Path) -> str:
    """The secret in a file."""
    try:
        mode = file.stat().st_mode & 0o777
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
    if not key:
        raise UserError(
            f"{file} is empty", why="it is to hold the key", remedy=f"openssl rand -hex 32 > {file}; chmod 600 {file}"
        )
    return key
