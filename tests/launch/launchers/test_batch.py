"""Scripts for schedulers: what they ask for, that nothing typed by a user is evaluated, and what is refused."""

import json
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from phalanx.errors import UserError
from phalanx.launch.hosts import Host
from phalanx.launch.launchers.batch_script import BatchJob, Resources, ScriptSyntax, clock, parse_time, script, share
from phalanx.launch.launchers.mpi import MpirunShell
from phalanx.launch.launchers.scheduler import called
from phalanx.launch.launchers.sge import Pbs, QrshShell, Sge
from phalanx.launch.launchers.sge import allocation as sge_allocation
from phalanx.launch.launchers.slurm import Slurm, SrunShell
from phalanx.launch.launchers.slurm import allocation as slurm_allocation
from phalanx.launch.remote_shell import ignore_signals

NASTY = ("optim.lr=0.1", "a b", "it's", 'say "hi"', "$HOME", "`id`", "two\nlines", "ünïcode", "*", "!x", "")


def job(run: Path, **asked: object) -> BatchJob:
    resources = Resources(nodes=2, roles_per_node=3, pe="gloo", slots=2, **asked)  # type: ignore[arg-type]
    launch = ("phalanx", "launch", "--launcher", "inside")
    return BatchJob("digits", run, run.parent, "phalanx launch …", launch, ("digits", "--out", str(run)), resources)


def directives(syntax: ScriptSyntax, batch: BatchJob) -> list[str]:
    lines = script(syntax, batch, batch.run / "job").splitlines()
    return [line.removeprefix(f"{syntax.marker} ") for line in lines if line.startswith(f"{syntax.marker} ")]


def test_slurm_is_asked_for_what_the_job_needs(tmp_path: Path) -> None:
    asked = {"time_s": 5400, "partition": "gpu", "account": "me", "gpus_per_node": 4, "directives": ("--qos=high",)}
    batch = job(tmp_path / "run", **asked)
    assert directives(Slurm.syntax, batch) == [
        "--job-name=digits",
        f"--output={tmp_path}/run/logs/batch.log",
        "--open-mode=append",
        "--nodes=2",
        "--ntasks-per-node=3",
        "--gpus-per-node=4",
        "--partition=gpu",
        "--account=me",
        "--time=01:30:00",
        "--signal=B:USR1@60",
        "--requeue",
        "--qos=high",
    ]
    assert '--output="/a b/100%%/logs/batch.log"' in directives(Slurm.syntax, job(Path("/a b/100%")))


def test_grid_engine_and_pbs_differ_in_words_only(tmp_path: Path) -> None:
    batch = replace(job(tmp_path / "run", time_s=5400, partition="all.q"), name="2nd try")
    sge, pbs = directives(Sge.syntax, batch), directives(Pbs.syntax, batch)
    assert {"-N job-2nd_try", "-pe gloo 2", "-l h_rt=01:30:00,s_rt=01:29:00", "-q all.q", "-r y", "-notify"} <= set(sge)
    assert {"-N job-2nd_try", "-l select=2:ncpus=3", "-l walltime=01:30:00", "-q all.q", "-r y"} <= set(pbs)
    assert 'sort -u "$PBS_NODEFILE" >"$run/hosts"' in script(Pbs.syntax, batch, tmp_path / "job")


@pytest.fixture
def echoing(tmp_path: Path) -> BatchJob:
    """A job whose launcher prints its words, in a folder whose name is no better than the words."""
    run = tmp_path / "it's $HOME `id`"
    run.mkdir()
    tell = (sys.executable, "-c", "import json, sys; print(json.dumps(sys.argv[1:]))")
    return replace(job(run), launch=tell, train=NASTY, command="phalanx 'a\nb'")


def run_script(batch: BatchJob) -> list[str]:
    path = batch.run / "job"
    path.write_text(script(Slurm.syntax, batch, path))
    words: list[str] = json.loads(subprocess.run(["bash", path], capture_output=True, text=True, check=True).stdout)
    return words


def test_words_arrive_unchanged_and_nothing_is_evaluated(echoing: BatchJob) -> None:
    assert run_script(echoing) == ["--", "train", *NASTY]


def test_a_script_that_runs_again_resumes(echoing: BatchJob) -> None:
    (echoing.run / "checkpoints" / "step-00000021").mkdir(parents=True)
    assert run_script(echoing) == ["--", "train", "--resume", str(echoing.run)]


def test_a_run_that_was_lost_before_its_first_checkpoint_starts_anew(echoing: BatchJob) -> None:
    (echoing.run / "events.jsonl").write_text("before")
    assert run_script(echoing) == ["--", "train", *NASTY]
    assert [path.read_text() for path in echoing.run.glob("events*")] == ["before"]
    assert not (echoing.run / "events.jsonl").exists()


TIMES = {"90": 5400, "10:30": 630, "1:30:00": 5400, "2-12": 216000, "1-0:30": 88200, "1-1:1:1": 90061}


@pytest.mark.parametrize(("text", "seconds"), TIMES.items(), ids=TIMES)
def test_times_are_read_as_slurm_reads_them(text: str, seconds: int) -> None:
    assert parse_time(text) == seconds


@pytest.mark.parametrize("text", ["", "1h", "1:2:3:4", "-5", "1:-2", "1-", "1", "0:59"])
def test_other_times_are_refused(text: str) -> None:
    with pytest.raises(UserError) as refused:
        parse_time(text)
    assert refused.value.remedy


def test_small_sums() -> None:
    assert clock(90061) == "25:01:01"
    assert [share(4, 2), share(5, 2), share(1, 4)] == [2, 3, 1]


def test_remote_shells_quote_only_what_a_shell_reads() -> None:
    """What each would run, run here: qrsh gives its words to a shell, the others do not."""
    tell = [sys.executable, "-c", "import json, sys; print(json.dumps(sys.argv[1:]))", *NASTY]

    def printed(argv: list[str]) -> object:
        return json.loads(subprocess.run(argv, capture_output=True, text=True, check=True).stdout)

    srun = SrunShell().command(Host("n1"), tell)
    assert "--nodelist=n1" in srun
    assert printed(srun[srun.index("/bin/sh") :]) == list(NASTY)
    mpirun = MpirunShell("mpirun", ("--mca", "a", "b")).command(Host("n1"), tell)
    words = ["mpirun", "--mca", "a", "b", "-np", "1", "-host", "n1", "-bind-to", "none"]
    assert mpirun[: mpirun.index(sys.executable)] == words
    assert printed(mpirun[mpirun.index(sys.executable) :]) == list(NASTY)
    qrsh = QrshShell("n1").command(Host("n2"), tell)
    assert qrsh[:3] == ["qrsh", "-inherit", "n2"]
    assert printed(["/bin/sh", "-c", qrsh[3]]) == list(NASTY)
    assert printed(QrshShell("n1").command(Host("n1"), tell)) == list(NASTY)


def test_a_role_that_starts_with_sigterm_ignored_keeps_ignoring_it() -> None:
    """Slurm signals every process of a job, and the launcher stops trainers too: one of the two must not be handled."""
    role = "import time; from phalanx.signals import StopRequest\n"
    role += "with StopRequest() as stop:\n print('ready', flush=True)\n while not stop: time.sleep(0.01)\n"
    role += "print(stop.received.name)"
    for ignored, handled in ((True, "SIGINT"), (False, "SIGTERM")):
        argv = [sys.executable, "-c", role]
        process = subprocess.Popen(
            ignore_signals("TERM", argv) if ignored else argv,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGTERM)
        if ignored:
            process.send_signal(signal.SIGTERM)
            process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=120)[0] == f"{handled}\n"


def test_the_hosts_of_an_allocation(tmp_path: Path) -> None:
    assert slurm_allocation({"SLURM_JOB_NODELIST": "n[1-2],m7"}) == [Host("n1"), Host("n2"), Host("m7")]
    (tmp_path / "hosts").write_text("n2.cluster 2 main.q@n2 UNDEFINED\nn1.cluster 1 main.q@n1 UNDEFINED\n")
    hosts, shell = sge_allocation({"PE_HOSTFILE": str(tmp_path / "hosts")})
    assert hosts == [Host("n2.cluster", slots=2), Host("n1.cluster", slots=1)]
    assert shell.here == "n2.cluster"
    for outside in (slurm_allocation, sge_allocation):
        with pytest.raises(UserError, match="needs an allocation"):
            outside({})


LAUNCH = [sys.executable, "-m", "phalanx", "launch", "-n", "2"]
REFUSED = {
    "no such program": (["--launcher", "slurm"], "sbatch: not found"),
    "too many nodes": (["--launcher", "slurm", "--nodes", "3"], "more than the job's 2 workers"),
    "hosts are the scheduler's business": (["--launcher", "slurm", "--ips", "a,b"], "--launcher slurm has no --ips"),
    "no parallel environment": (["--launcher", "sge"], "needs --pe"),
    "outside of a job": (["--launcher", "srun"], "needs an allocation"),
    "two lines": (["--launcher", "slurm", "--directive", "--qos=a\nrm -rf /"], "has a line break"),
    "mpirun's hosts": (["--launcher", "mpi", "--ips", "me@a"], "cannot use the user or port"),
}


@pytest.mark.parametrize(("options", "said"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_work_is_refused_and_leaves_nothing(tmp_path: Path, options: list[str], said: str) -> None:
    argv = [*LAUNCH, *options, "--", "train", "digits"]
    done = subprocess.run(argv, capture_output=True, text=True, cwd=tmp_path, env={"PATH": "/nowhere"})
    assert done.returncode == 2, done.stderr
    assert said in done.stderr
    assert "try:" in done.stderr
    assert not list(tmp_path.iterdir()) or not list((tmp_path / "runs").iterdir())


def test_a_schedulers_command_never_gets_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """`qsub -V` and sbatch keep the environment that they are called with, and show it to others."""
    monkeypatch.setenv("PHALANX_KEY", "the job's secret")
    monkeypatch.setenv("PHALANX_KEY_FILE", "/home/me/key")
    listed = called(["env"], "listing the environment").splitlines()
    assert "PHALANX_KEY_FILE=/home/me/key" in listed
    assert not [line for line in listed if line.startswith("PHALANX_KEY=")]
