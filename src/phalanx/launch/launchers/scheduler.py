"""What a batch scheduler can do for us: take a script, say how its job stands, cancel it."""

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from phalanx.errors import UserError
from phalanx.launch.launchers.batch_script import Dialect


@dataclass(frozen=True)
class State:
    """How a job stands; `detail` is in the scheduler's words. `code` is the exit code where the scheduler keeps it."""

    kind: Literal["waiting", "running", "ended", "unknown"]
    detail: str = ""
    code: int | None = None


class Scheduler(Protocol):
    """A scheduler's commands. `inside` is the launcher that its scripts use in the allocation."""

    name: str
    dialect: Dialect
    inside: str

    def submit(self, script: str) -> str:
        """Returns the job's number."""
        ...

    def state(self, job: str) -> State: ...

    def cancel(self, job: str) -> None: ...


def called(argv: Sequence[str], doing: str, package: str = "") -> str:
    """What a scheduler's command prints. That it is missing or fails is for the user to know."""
    try:
        done = subprocess.run(argv, capture_output=True, text=True)
    except FileNotFoundError as error:
        raise UserError(
            f"{argv[0]}: not found",
            why=f"{doing} needs it, and it is not on the PATH",
            remedy=f"run this on a host that submits jobs{f' (Debian: {package})' if package else ''}, "
            "or choose another --launcher",
        ) from error
    if done.returncode != 0:
        raise UserError(
            f"{doing} failed",
            why=" / ".join((done.stderr or done.stdout).strip().splitlines()[-3:]) or f"{argv[0]} gave no reason",
            remedy="mend what it complains about, and try again",
        )
    return done.stdout
