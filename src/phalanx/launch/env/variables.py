"""Reads numbers from a launcher's variables, with errors that name the variable."""

from phalanx.config.role import Environment
from phalanx.errors import UserError


def number(variable: str, environment: Environment, launcher: str, default: int | None = None) -> int:
    """A rank or a count."""
    text = environment.get(variable, "" if default is None else str(default))
    if not text.isdecimal():
        raise bad_variable(variable, text, "is not a rank or a count", launcher)
    return int(text)


def bad_variable(variable: str, text: str, wrong: str, launcher: str) -> UserError:
    return UserError(
        f"{variable}={text!r} {wrong}",
        why=f"other variables show that {launcher} started this process",
        remedy=f"correct {variable}, or unset the variables of {launcher} to train on this machine alone",
    )


def refuse_rank(rank: int, world: int, rank_variable: str, world_variable: str) -> None:
    """Refuse a rank beyond the world size."""
    if rank >= world:
        raise UserError(
            f"{rank_variable}={rank} does not fit {world_variable}={world}",
            why="ranks are counted from 0",
            remedy=f"correct one of them, or unset {rank_variable} to train on this machine alone",
        )
