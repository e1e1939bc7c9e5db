"""Who speaks where, under launchers that are not ours.

Our own launchers, and Kubernetes, keep every role's words apart, so each role speaks. Any other launcher may put all
ranks on one screen, where the first trainer speaks for all. A rank above it speaks where its output is its own:

- a file that no other process of the job speaks in (`torchrun --redirects`, `srun --output=%t`, `> log.1` in a script);
- what OpenMPI keeps apart with --output-filename. Unless that is told `nocopy`, mpirun's screen shows the same: there
  each line says whose it is.

A terminal or a pipe looks the same whoever else has it, so it counts as shared.
"""

import fcntl
import os
import stat
import sys
from typing import TextIO, cast

from rich.console import Console

from phalanx.config.role import Environment, Role

_APART = ("none", "phalanx", "kubernetes")  # launchers that keep words apart
_OPENMPI_FILES = "OMPI_MCA_orte_output_filename"
_PLACE = 1 << 40  # of the byte that is locked: beyond the end of any log


def claim(stream: TextIO) -> bool:
    """Be the one who speaks in a file. False where another process is, or where it is no file.

    The first trainer claims before the workers meet, the others when they have: so it always has the file that it
    writes to. The system takes a claim back when the process ends.
    """
    try:
        descriptor = stream.fileno()
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return False
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, _PLACE)
    except (OSError, ValueError):  # claimed, no descriptor, or a disk that knows no locks
        return False
    return True


def may_speak(role: Role, environment: Environment = os.environ) -> bool:
    """Whether a trainer's words are to be seen, once all workers have met."""
    return role.rank == 0 or role.launcher in _APART or _OPENMPI_FILES in environment or claim(sys.stdout)


def console_of(role: Role | None, environment: Environment = os.environ) -> Console:
    """A trainer's screen; with its name before each line where others' words are on the same one."""
    files = environment.get(_OPENMPI_FILES)
    if role is None or role.rank == 0 or role.launcher in _APART or files is None or "nocopy" in files.split(":")[1:]:
        return Console()
    return Console(file=cast(TextIO, _Named(sys.stdout, f"{role.name} | ")))


class _Named:
    """A stream whose lines begin with a name."""

    encoding = "utf-8"

    def __init__(self, stream: TextIO, name: str) -> None:
        self._stream, self._name = stream, name
        self._at_start = True

    def write(self, text: str) -> int:
        for line in text.splitlines(keepends=True):
            self._stream.write(f"{self._name}{line}" if self._at_start else line)
            self._at_start = line.endswith("\n")
        return len(text)

    def flush(self) -> None:
        self._stream.flush()

    def isatty(self) -> bool:
        return False
