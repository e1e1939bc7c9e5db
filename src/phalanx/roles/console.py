"""Which trainers print, under launchers that are not ours.

Our own launchers and Kubernetes keep the output of each role separate, so each role prints. Other launchers may show
all ranks on one terminal, where only the first trainer prints. Another rank prints if its output is its own:

- a file that no other process of the job prints to (`torchrun --redirects`, `srun --output=%t`, `> log.1` in a script);
- OpenMPI's --output-filename. Without its `nocopy`, mpirun's terminal shows the same lines: there each line begins with
  the role's name.

A terminal or a pipe may be shared, so it counts as shared.
"""

import fcntl
import os
import stat
import sys
from typing import TextIO, cast

from rich.console import Console

from phalanx.config.role import Environment, Role

_SEPARATE = ("none", "phalanx", "kubernetes")  # launchers that keep output separate
_OPENMPI_FILES = "OMPI_MCA_orte_output_filename"
_LOCK_OFFSET = 1 << 40  # of the locked byte: beyond the end of any log


def claim(stream: TextIO) -> bool:
    """Lock a file for this process's output. False if another process has it, or if it is no file.

    The first trainer claims before the rendezvous and the others after it, so the first always gets its file. The
    system releases the lock when the process ends.
    """
    try:
        descriptor = stream.fileno()
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return False
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, _LOCK_OFFSET)
    except (OSError, ValueError):  # claimed, no descriptor, or a disk without locks
        return False
    return True


def may_print(role: Role, environment: Environment = os.environ) -> bool:
    """Whether a trainer prints, after the rendezvous."""
    return role.rank == 0 or role.launcher in _SEPARATE or _OPENMPI_FILES in environment or claim(sys.stdout)


def console_of(role: Role | None, environment: Environment = os.environ) -> Console:
    """A trainer's console; each line begins with its name if others print to the same terminal."""
    files = environment.get(_OPENMPI_FILES)
    if (
        role is None
        or role.rank == 0
        or role.launcher in _SEPARATE
        or files is None
        or "nocopy" in files.split(":")[1:]
    ):
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
