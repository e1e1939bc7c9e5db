"""RUN/batch.json, which may be somebody else's: only a job's number reaches a scheduler's command."""

import json
from pathlib import Path

import pytest
from rich.console import Console

from phalanx.commands.stop import stop_job
from phalanx.errors import UserError
from phalanx.launch.launchers.submitted import submitted_job


@pytest.fixture
def called(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file with the words of each call of scontrol and scancel."""
    words = tmp_path / "called"
    (tmp_path / "bin").mkdir()
    for name, says in (("scontrol", "JobState=RUNNING NodeList=n1"), ("scancel", "")):
        program = tmp_path / "bin" / name
        program.write_text(f'#!/bin/sh\necho "{name} $*" >> {words}\necho "{says}"\n')
        program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=":")
    return words


@pytest.mark.parametrize("job", ["--user=ann", "-u", "", "7 --user=ann", "7\n--user=ann"])
@pytest.mark.parametrize("scheduler", ["slurm", "k8s"])
def test_an_option_in_place_of_a_number_is_refused(scheduler: str, job: str, called: Path, tmp_path: Path) -> None:
    (tmp_path / "batch.json").write_text(json.dumps({"scheduler": scheduler, "job": job}))
    with pytest.raises(UserError, match="names no job of a scheduler"):
        stop_job(Console(), tmp_path)
    assert not called.exists()


def test_an_unknown_scheduler_is_refused(tmp_path: Path) -> None:
    (tmp_path / "batch.json").write_text('{"scheduler": "other", "job": "7"}')
    with pytest.raises(UserError, match="scheduler 'other'"):
        submitted_job(tmp_path)


@pytest.mark.parametrize("job", ["7", "7_3", "7;east", "12[].server"])
def test_a_job_is_stopped_by_its_number(job: str, called: Path, tmp_path: Path) -> None:
    (tmp_path / "batch.json").write_text(json.dumps({"scheduler": "slurm", "job": job}))
    stop_job(Console(), tmp_path)
    assert f"scancel {job}\n" in called.read_text()
