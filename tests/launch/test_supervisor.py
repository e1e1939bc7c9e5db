"""A whole job on this machine, with roles that only sleep: start, restart, stop, end, and status."""

import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

from phalanx.errors import EXIT_OURS, EXIT_USER, UserError
from phalanx.launch import supervisor
from phalanx.launch.launchers.local import supervise_here
from phalanx.launch.policy import Policy
from phalanx.launch.record import load_record
from tests.launch.sleepers import mine, sleepers
from tests.waiting import until


def supervise(run: Path, policy: Policy, *what: str, workers: int = 2, servers: int = 0) -> tuple[int, str]:
    run.mkdir(exist_ok=True)
    said = io.StringIO()
    job = sleepers(run, policy, *what, workers=workers, servers=servers)
    code = supervise_here(job, Console(file=said, width=300))
    assert mine(job.id) == []
    return code, said.getvalue()


def test_a_job_that_ends_well(tmp_path: Path) -> None:
    code, said = supervise(tmp_path / "run", Policy(independent=False), "end", servers=1)
    assert (code, said) == (0, "")
    record = load_record(tmp_path / "run")
    assert (record.state, record.exit_code, record.supervised) == ("ended", 0, False)
    assert [role.name for role in record.roles] == ["server-0", "trainer-0", "trainer-1"]
    assert {role.state for role in record.roles} == {"ended"}
    assert "trainer-1 of 2" in (tmp_path / "run" / "logs" / "trainer-1.log").read_text()


def test_an_evaluator_that_takes_its_time_at_the_end_is_not_killed(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    job = sleepers(tmp_path / "run", Policy(independent=False), "end", "slow", evaluators=1)
    said = io.StringIO()
    assert supervise_here(job, Console(file=said)) == 0
    evaluator = load_record(tmp_path / "run").roles[-1]
    assert (evaluator.name, evaluator.state, evaluator.code) == ("evaluator-0", "ended", 0)
    assert said.getvalue() == ""


@pytest.mark.parametrize(
    ("code", "how", "ends"), [(-9, "was killed by SIGKILL", EXIT_OURS), (2, "ended with code 2", EXIT_USER)]
)
def test_a_lost_role_ends_the_job_and_is_named(tmp_path: Path, code: int, how: str, ends: int) -> None:
    ended, said = supervise(tmp_path / "run", Policy(independent=False), f"trainer-1={code}", servers=1)
    assert ended == ends
    assert f"trainer-1 on localhost {how}; the job ends" in said
    assert f"last lines of {tmp_path}/run/logs/trainer-1.log:" in said
    assert load_record(tmp_path / "run").cause == f"trainer-1 on localhost {how}"


def test_a_log_that_cannot_be_written_ends_the_job(tmp_path: Path) -> None:
    (tmp_path / "run" / "logs" / "trainer-1.log").mkdir(parents=True)
    with pytest.raises(UserError, match=r"localhost: .*trainer-1.log cannot be written"):
        supervise(tmp_path / "run", Policy(independent=False), "hello")
    record = load_record(tmp_path / "run")
    assert (record.state, record.exit_code) == ("ended", 2)
    assert mine(record.id) == []


def test_an_independent_job_restarts_a_lost_trainer(tmp_path: Path) -> None:
    code, said = supervise(tmp_path / "run", Policy(independent=True), "trainer-1=-9", "end", workers=3)
    assert code == 0
    assert "trainer-1 on localhost was killed by SIGKILL; restarting it, the others continue" in said
    starts = {role.name: role.starts for role in load_record(tmp_path / "run").roles}
    assert starts == {"trainer-0": 1, "trainer-1": 2, "trainer-2": 1}


def test_a_trainer_that_comes_back_after_the_others_have_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Servers leave when nobody is left to serve: it would wait for them, and fail the job that has finished."""
    monkeypatch.setattr(supervisor, "EXIT_S", 0.5)
    what = ("trainer-1=-9", "trainer-0=0", "server-0=0")  # at its second start the trainer stays
    code, said = supervise(tmp_path / "run", Policy(independent=True), *what, servers=1)
    assert code == 0, said
    assert "trainer-1 on localhost was killed by SIGKILL; restarting it, the others continue" in said
    assert {role.state for role in load_record(tmp_path / "run").roles} == {"ended"}


@pytest.mark.parametrize(("restarts", "shrink", "world"), [(1, None, 3), (0, 2, 2)], ids=["replaced", "fewer"])
def test_a_group_restarts(tmp_path: Path, restarts: int, shrink: int | None, world: int) -> None:
    policy = Policy(independent=False, max_restarts=restarts, min_workers=shrink)
    saved = tmp_path / "run" / "checkpoints" / "step-00000003"
    saved.mkdir(parents=True)
    (saved / "manifest.json").write_text("{}")
    code, said = supervise(tmp_path / "run", policy, "trainer-1=-9", "trainer-2=75", "trainer-0=75", workers=3)
    assert code == 0, said
    assert "trainer-1 on localhost was killed by SIGKILL; restarting as a new group with" in said
    again = (tmp_path / "run" / "logs" / "trainer-1.log").read_text()
    assert f"trainer-1 of {world} says 'again {world} end'" in again
    assert len(load_record(tmp_path / "run").roles) == world


@pytest.fixture
def running(tmp_path: Path) -> Iterator["subprocess.Popen[str]"]:
    """A job in a process of its own, in tmp_path/runs/job; its output on a pipe."""
    script = (
        "import sys; from pathlib import Path; from rich.console import Console; "
        "from phalanx.launch.launchers.local import supervise_here; from phalanx.launch.policy import Policy; "
        "from tests.launch.sleepers import sleepers; "
        "job = sleepers(Path('runs/job'), Policy(independent=False), *sys.argv[1:]); "
        "sys.exit(supervise_here(job, Console(width=300)))"
    )
    root = Path(__file__).parents[2]
    (tmp_path / "runs" / "job").mkdir(parents=True)
    process = subprocess.Popen(
        [sys.executable, "-c", script, "hello"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(root), os.environ.get("PYTHONPATH", "")])},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    log = tmp_path / "runs/job/logs/trainer-1.log"
    until(lambda: log.exists() and log.stat().st_size > 0)
    yield process
    process.kill()
    process.communicate()


def phalanx(cwd: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "phalanx", *words], cwd=cwd, capture_output=True, text=True, timeout=180
    )


def test_a_running_job_is_seen_and_stopped_from_another_terminal(
    running: "subprocess.Popen[str]", tmp_path: Path
) -> None:
    record = json.loads((tmp_path / "runs/job/job.json").read_text())
    assert Path(record["socket"]).stat().st_mode & 0o777 == 0o600
    assert Path(record["socket"]).parent.stat().st_mode & 0o777 == 0o700
    seen = phalanx(tmp_path, "status")
    assert seen.returncode == 0, seen.stderr
    assert "state: running for" in seen.stdout
    assert "trainer-1\tlocalhost\trunning\t1\t" in seen.stdout
    following = subprocess.Popen(
        [sys.executable, "-m", "phalanx", "logs", "runs/job", "-f"], cwd=tmp_path, stdout=subprocess.PIPE, text=True
    )
    assert following.stdout is not None
    assert "trainer-1 | trainer-1 of 2 says 'hello'" in following.stdout.readline()
    stopped = phalanx(tmp_path, "stop")
    assert stopped.returncode == 0, stopped.stderr
    assert running.wait(120) == 143
    assert following.wait(120) == 0  # it follows until the job ends
    assert mine(record["id"]) == []
    assert "state: ended after" in phalanx(tmp_path, "status", "runs/job").stdout
    again = phalanx(tmp_path, "stop", "runs/job")
    assert again.returncode == 2
    assert "is not running here" in again.stderr
    assert phalanx(tmp_path, "stop").returncode == 2
    assert "there is no log of 'trainer-9'" in phalanx(tmp_path, "logs", "runs/job", "trainer-9").stderr
    assert "hello" in phalanx(tmp_path, "logs", "runs/job", "trainer-1").stdout


def test_an_interrupted_set_up_ends_at_once(tmp_path: Path) -> None:
    """Hosts are still being prepared, and no role was started."""
    launch = [sys.executable, "-m", "phalanx", "launch", "-n", "2", "--setup", "touch begun; sleep 600", "--", "train"]
    process = subprocess.Popen(
        [*launch, "--out", "run"], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    until(lambda: (tmp_path / "begun").exists())
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=180)
    assert process.returncode == 130, said
    assert "stopping all processes now" in said
    assert not list((tmp_path / "run" / "logs").iterdir())


def test_a_killed_launcher_takes_its_roles_along(running: "subprocess.Popen[str]", tmp_path: Path) -> None:
    job = load_record(tmp_path / "runs/job")
    told = Path(f"/proc/{mine(job.id)[0]}/environ").read_text().split("\0")
    folder = Path(next(word for word in told if word.startswith("PHALANX_JOB_FOLDER=")).partition("=")[2])
    assert folder.stat().st_mode & 0o777 == 0o700
    running.kill()
    running.wait()
    until(lambda: not mine(job.id))
    until(lambda: not folder.exists(), why=lambda: "it holds the job's key")
    seen = phalanx(tmp_path, "status")
    assert "its launcher is gone" in seen.stdout
