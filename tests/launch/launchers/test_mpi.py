"""OpenMPI over two hosts with sshd: as our remote shell, and by itself, with the rendezvous on mpirun's host."""

import sys
from pathlib import Path
from typing import Any

import pytest

from phalanx.runs.events import read_events
from tests.conftest import LEAN
from tests.lab.hosts import Lab, hosts_up, require_tools
from tests.lab.mpi import OPENMPI, openmpi_on, ssh_agent

SETTINGS = ["digits", "model.name=wrn10_1", "train.length=4st", *LEAN, "train.log_every=2"]
SETTINGS += ["--global-batch-size", "96"]
PHALANX = [sys.executable, "-m", "phalanx"]


@pytest.mark.lab
def test_two_hosts_over_openmpi(tmp_path: Path) -> None:
    require_tools({OPENMPI.program: OPENMPI.package})
    with hosts_up(2) as lab:
        launched = lab.start("h1", launch(lab, tmp_path / "launched"), cwd=tmp_path, env=OPENMPI.root)
        warm = [str(lab.python), *PHALANX[1:]]
        alone = [*openmpi_on(lab, lab.names), *warm, "train", *SETTINGS, "--out", str(tmp_path / "alone")]
        by_itself = lab.start("h1", alone, cwd=tmp_path, env=OPENMPI.root)
        for process in (launched, by_itself):
            said, _ = process.communicate(timeout=180)
            assert process.returncode == 0, said
        losses = [last_step(tmp_path / name)["loss"] for name in ("launched", "alone")]
        assert losses[0] == losses[1]
        assert len(last_step(tmp_path / "alone")["ranks"]) == 2
        assert not lab.processes(str(tmp_path)), "something of the job is left"


def launch(lab: Lab, out: Path) -> list[str]:
    mpirun = f"{OPENMPI.program} --mca plm_rsh_agent {ssh_agent(lab)} --mca oob_tcp_if_include eth0"
    options = ["-n", "2", "--launcher", "mpi", "--ips", "h1,h2", "--mpirun", mpirun, "--python", str(lab.python)]
    return [*PHALANX, "launch", *options, "--", "train", *SETTINGS, "--out", str(out)]


def last_step(run: Path) -> dict[str, Any]:
    return [record for record in read_events(run) if record["kind"] == "step"][-1]
