"""OpenMPI and MPICH as Debian packages them, side by side; on several hosts through the hosts' own sshd."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.lab.hosts import Lab, find_tool


@dataclass(frozen=True)
class Mpi:
    """One of the two: `program` with `options` starts processes, on this machine or on hosts."""

    program: str
    package: str
    options: tuple[str, ...] = ()

    def command(self, processes: int) -> list[str]:
        """On this machine, as many processes as are asked for, however few cores it has."""
        if find_tool(self.program) is None:
            pytest.skip(f"not installed: {self.package}; on Debian: apt install {self.package}")
        return [self.program, *self.options, "-np", str(processes)]

    @property
    def root(self) -> dict[str, str]:
        """Variables by which OpenMPI lets root use it."""
        return {name: "1" for name in ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM") if os.geteuid() == 0}


OPENMPI = Mpi("mpirun.openmpi", "openmpi-bin", ("--oversubscribe",))
MPICH = Mpi("mpiexec.hydra", "mpich")


def ssh_agent(lab: Lab) -> Path:
    """A program that is ssh with the lab's keys, as `plm_rsh_agent` and `-launcher-exec` want it."""
    path = lab.folder / "ssh"
    path.write_text(f'#!/bin/sh\nexec ssh -F "{lab.ssh_config}" "$@"\n')
    path.chmod(0o755)
    return path


def openmpi_on(lab: Lab, hosts: Sequence[str]) -> list[str]:
    """mpirun with a process a host; to be run on one of them."""
    reached = ["--mca", "plm_rsh_agent", str(ssh_agent(lab)), "--mca", "oob_tcp_if_include", "eth0"]
    return [OPENMPI.program, *reached, "--host", ",".join(hosts), "-np", str(len(hosts))]
