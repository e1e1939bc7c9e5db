"""Reading a launcher's variables: numbers and the job's key, refused by name where they are wrong."""

from collections.abc import Mapping
from pathlib import Path

from phalanx.errors import UserError

Environment = Mapping[str, str]


def number(variable: str, environment: Environment, launcher: str, default: int | None = None) -> int:
    """A rank or a count."""
    text = environment.get(variable, "" if default is None else str(default))
    if not text.isdecimal():
        raise bad_variable(variable, text, "is not a rank or a count", launcher)
    return int(text)


def bad_variable(variable: str, text: str, wrong: str, launcher: str) -> UserError:
    return UserError(
        f"{variable}={text!r} {wrong}",
        why=f"other variables say that this process belongs to a job of {launcher}",
        remedy=f"mend {variable}, or unset the variables of {launcher} to train on this machine alone",
    )


def refuse_rank(rank: int, world: int, rank_variable: str, world_variable: str) -> None:
    """Ranks are counted from 0."""
    if rank >= world:
        raise UserError(
            f"{rank_variable}={rank} does not fit {world_variable}={world}",
            why="ranks are counted from 0",
            remedy=f"mend one of them, or unset {rank_variable} to train on this machine alone",
        )


def key_of(environment: Environment) -> str:
    """The job's secret: PHALANX_KEY, or the contents of the file PHALANX_KEY_FILE; empty where neither is set."""
    file = environment.get("PHALANX_KEY_FILE")
    if environment.get("PHALANX_KEY") or not file:
        return environment.get("PHALANX_KEY", "")
    return read_key(Path(file))


def read_key(file: Path) -> str:
    """The secret in a file."""
    try:
        key = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(
            f"the key cannot be read from {file}",
            why=getattr(error, "strerror", None) or str(error),
            remedy="name a file that every host sees, made once: openssl rand -hex 32 > FILE",
        ) from error
    if not key:
        raise UserError(f"{file} is empty", why="it is to hold the key", remedy=f"openssl rand -hex 32 > {file}")
    return key
