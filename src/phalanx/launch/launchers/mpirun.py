"""mpirun as carrier: one for each host, since standard input reaches the first process only."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from phalanx.launch.hosts import Host
from phalanx.launch.remote_shell import Way


@dataclass(frozen=True)
class MpirunShell:
    """`options` are the user's. The agent is not bound to a core: its roles are to use all of them."""

    program: str = "mpirun"
    options: tuple[str, ...] = ()

    def command(self, host: Host, remote: Sequence[str]) -> list[str]:
        return [self.program, *self.options, "-np", "1", "-host", host.name, "-bind-to", "none", *remote]

    def way(self, host: Host) -> Way:
        return Way("mpirun", shlex.join([self.program, *self.options, "-np", "1", "-host", host.name, "true"]))
