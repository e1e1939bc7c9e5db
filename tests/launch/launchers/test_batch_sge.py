"""A job on a real Grid Engine: submitted, followed, warned and requeued, deleted."""

import json
import os
import signal
import sys
from pathlib import Path

import pytest

from phalanx.runs.events import read_events
from tests.lab.hosts import hosts_up
from tests.lab.sge import sge_up
from tests.launch.launchers.test_batch_slurm import SETTINGS, newest, text
from tests.waiting import until

LAUNCH = [sys.executable, "-m", "phalanx", "launch", "-n", "2", "--launcher", "sge", "--nodes", "2"]


@pytest.mark.lab
def test_a_job_is_submitted_followed_queued_again_and_deleted(tmp_path: Path) -> None:
    """Three hosts for a job of two: Grid Engine does not give a requeued job all of its hosts back."""
    run = tmp_path / "run"
    with hosts_up(3) as lab, sge_up(lab) as sge:
        launch = [*LAUNCH, "--pe", sge.PE, "--", "train", *SETTINGS, "--out", str(run)]
        following = sge.start(launch, cwd=tmp_path)
        until(lambda: "step 4:" in text(run / "log.txt"), why=lambda: text(run / "logs/batch.log"))
        job = json.loads((run / "batch.json").read_text())["job"]
        roles = {(process.host, role) for process in lab.processes(str(run)) for role in roles_in(process.pid)}
        assert {role for _, role in roles} == {"trainer-0", "trainer-1"}
        assert len({host for host, _ in roles}) == 2

        launcher = next(one for one in lab.processes(str(run)) if {"launch", "qrsh"} <= set(one.words))
        os.kill(launcher.pid, signal.SIGUSR1)  # as at the soft limit
        until(lambda: "resumed at step" in text(run / "log.txt"), why=lambda: text(run / "logs/batch.log"))
        assert "requeueing the job; it resumes from its checkpoint" in text(run / "logs/batch.log")
        resumed = [event["step"] for event in read_events(run) if event["kind"] == "resume"]
        assert resumed[0] >= 4

        stopped = sge.run([sys.executable, "-m", "phalanx", "stop", str(run)]).stdout
        assert f"cancelling sge job {job}" in stopped
        said, _ = following.communicate(timeout=180)
        assert following.returncode == 143
        assert f"submitted job {job}: " in said
        assert f"job {job} is running: r" in said
        assert f"job {job} has ended" in said
        assert " | " in said
        assert newest(run) >= resumed[0]
        assert not lab.processes(str(run)), "something of the job is left"
        assert job not in sge.run(["qstat"]).stdout


def roles_in(pid: int) -> list[str]:
    """The name of a role, from its environment."""
    try:
        variables = dict(word.partition("=")[::2] for word in Path(f"/proc/{pid}/environ").read_text().split("\0"))
    except OSError:
        return []
    return [variables["PHALANX_NAME"]] if "PHALANX_NAME" in variables else []
