"""The interface of batch schedulers: submit a script, query its job, cancel it."""

import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from phalanx.errors import UserError
from phalanx.launch.launchers.batch_script import ScriptSyntax


@dataclass(frozen=True)
class State:
    """The state of a job; `detail` is the scheduler's text, `code` the exit code if the scheduler keeps it."""

    kind: Literal["waiting", "running", "ended", "unknown"]
    detail: str = ""
    code: int | None = None


class Scheduler(Protocol):
    """A scheduler's commands. `inside` is the launcher that its scripts use in the allocation."""

    name: str
    syntax: ScriptSyntax
    inside: str

    def submit(self, script: str) -> str:
        """Returns the job's number."""
        ...

    def state(self, job: str) -> State: ...

    def cancel(self, job: str) -> None: ...


def called(argv: Sequence[str], doing: str, package: str = "") -> str:
    """Run a scheduler's command and return its output. Raises if it is missing or fails."""
    try:
        done = subprocess.run(argv, capture_output=True, text=True, env=without_key())
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
            remedy="fix the reported problem, and try again",
        )
    return done.stdout


def without_key() -> dict[str, str]:
    """The environment without a key: schedulers keep it, and show it to others. A job makes a key of its own."""
    return {name: value for name, value in os.environ.items() if name != "PHALANX_KEY"}
