"""Under launchers that are not ours: plain lines whatever they pretend, and one speaker for each screen and file."""

import os
import pty
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from phalanx.launch.env.roles import is_foreign
from tests.conftest import LEAN
from tests.lab.mpi import MPICH, OPENMPI, Mpi
from tests.warm.outside import phalanx_outside

TRAIN = ["train", "digits", "model.name=wrn10_1", "train.length=4st", *LEAN, "train.log_every=2", "eval.every=100%"]
PHALANX = [sys.executable, "-m", "phalanx"]
STEPS = ["step 2", "step 4"]
ESCAPE = "\x1b"


@pytest.fixture(scope="module")
def phalanx() -> Iterator[list[str]]:
    """The command for mpirun, which starts processes itself: they start warm, too."""
    with phalanx_outside() as words:
        yield words


def run(argv: Sequence[str], cwd: Path, env: Mapping[str, str] | None = None) -> str:
    """What comes on the screen, where that is no terminal."""
    done = subprocess.run(
        argv, cwd=cwd, env={**os.environ, **(env or {})}, capture_output=True, text=True, timeout=300, stdin=0
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def steps(text: str, worker: int) -> list[str]:
    """The steps that a worker told of, by its own figures."""
    assert ESCAPE not in text
    lines = [line for line in text.splitlines() if "this worker " in line]
    return [re.findall(r"step \d+", line)[0] for line in lines if line.startswith("trainer-1 | ") == bool(worker)]


def test_openmpi_with_a_file_for_each_rank(phalanx: list[str], tmp_path: Path) -> None:
    """mpirun gives its ranks a pseudo-terminal, and shows on its screen what files get, unless told otherwise."""
    command = OPENMPI.command(2)
    kept = [*command, "--output-filename", str(tmp_path / "kept"), *phalanx, *TRAIN, "--out", str(tmp_path / "a")]
    screen = run(kept, tmp_path, OPENMPI.root)
    assert (steps(screen, 0), steps(screen, 1)) == (STEPS, STEPS)
    first, second = ((tmp_path / f"kept/1/rank.{rank}/stdout").read_text() for rank in range(2))
    assert steps(first, 0) == STEPS
    assert steps(second, 1) == STEPS
    assert "worker: trainer-1 of 2 on " in second
    assert "see the output of trainer-0" in second
    files = [*command, "--output-filename", f"{tmp_path}/files:nocopy", *phalanx, *TRAIN, "--out", str(tmp_path / "b")]
    assert run(files, tmp_path, OPENMPI.root) == ""
    alone = (tmp_path / "files/1/rank.1/stdout").read_text()
    assert steps(alone, 0) == STEPS
    assert "trainer-1 | " not in alone


@pytest.mark.parametrize("mpi", [OPENMPI, MPICH], ids=lambda mpi: mpi.package)
def test_on_one_screen_the_first_speaks_for_all_and_logs_have_everybody(
    phalanx: list[str], tmp_path: Path, mpi: Mpi
) -> None:
    screen = run([*mpi.command(2), *phalanx, *TRAIN, "--out", "run", "--log-dir", "words"], tmp_path, mpi.root)
    assert (steps(screen, 0), steps(screen, 1)) == (STEPS, [])
    assert "trainer-1 of 2" not in screen
    for rank in range(2):
        log = (tmp_path / "words" / f"trainer-{rank}.log").read_text()
        assert log.startswith(f"trainer-{rank} of 2 on ")
        assert steps(log, 0) == STEPS
    told = run([*PHALANX, "logs", "run", "trainer-1"], tmp_path)  # no launcher of ours: the settings say where
    assert told == (tmp_path / "words/trainer-1.log").read_text()


def test_a_process_that_mpirun_started_alone_leads_a_job_in_plain_lines(phalanx: list[str], tmp_path: Path) -> None:
    screen = run([*OPENMPI.command(1), *phalanx, *TRAIN, "--workers", "2", "--out", "run"], tmp_path, OPENMPI.root)
    assert steps(screen, 0) == STEPS


@pytest.mark.parametrize("redirected", [True, False])
def test_torchrun(tmp_path: Path, redirected: bool) -> None:
    options = ["--redirects", "3", "--log-dir", str(tmp_path / "logs")] if redirected else []
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", *options]
    with (tmp_path / "both").open("w") as file:  # which both ranks have, unless they have their own
        subprocess.run(
            [*torchrun, "-m", "phalanx", *TRAIN, "--out", "run"], cwd=tmp_path, stdout=file, check=True, timeout=300
        )
    both = (tmp_path / "both").read_text()
    if redirected:
        assert [steps(path.read_text(), 0) for path in (tmp_path / "logs").rglob("stdout.log")] == [STEPS, STEPS]
        assert both == ""
    else:
        assert steps(both, 0) == STEPS
        assert "trainer-1 of 2" not in both


ALONE: list[dict[str, str]] = [
    {},
    {"SLURM_JOB_ID": "1", "SLURM_PROCID": "0"},  # a shell of salloc
    {"SLURM_STEP_ID": "4294967290", "SLURM_PROCID": "0"},
    {"SLURM_STEP_ID": "0", "SLURM_PROCID": "0", "SLURM_PTY_PORT": "40000"},
    {"PADDLE_HOME": "/opt", "DMLC_INTERFACE": "eth0"},
]
LAUNCHED: list[dict[str, str]] = [
    {"SLURM_STEP_ID": "0", "SLURM_PROCID": "0"},
    {"OMPI_COMM_WORLD_RANK": "0"},
    {"PMI_RANK": "1"},
    {"RANK": "0"},
    {"PADDLE_TRAINER_ID": "0"},
    {"DMLC_ROLE": "worker"},
]


@pytest.mark.parametrize("variables", [*ALONE, *LAUNCHED], ids=str)
def test_a_terminal_is_a_persons_unless_a_launcher_has_it(variables: dict[str, str]) -> None:
    assert is_foreign(variables) == (variables in LAUNCHED)


@pytest.mark.parametrize("variables", [{}, {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "1"}], ids=str)
def test_on_a_pseudo_terminal(variables: dict[str, str]) -> None:
    ours, theirs = pty.openpty()
    environment = {name: value for name, value in os.environ.items() if name not in ("TERM", "NO_COLOR")}
    argv = [*PHALANX, "recipes", "digits"]
    process = subprocess.Popen(argv, stdout=theirs, env={**environment, "TERM": "xterm", **variables})
    os.close(theirs)
    seen = b""
    try:
        while chunk := os.read(ours, 1 << 16):
            seen += chunk
    except OSError:  # how Linux tells that the other side is closed
        pass
    os.close(ours)
    assert process.wait(120) == 0
    assert (b"\x1b" in seen) == (not variables)
