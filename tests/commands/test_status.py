"""Where each worker's time goes, and where its log is: on this machine, and from hosts that share no disk."""

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from phalanx.launch.record import RoleRecord, load_record
from tests.conftest import LEAN
from tests.lab.hosts import hosts_up

PHALANX = [sys.executable, "-m", "phalanx"]
TRAIN = ["train", "digits", "model.name=wrn10_1", "train.length=6st", *LEAN, "train.log_every=2", "eval.every=100%"]


def phalanx(cwd: Path, *words: str) -> str:
    done = subprocess.run([*PHALANX, *words], cwd=cwd, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def assert_figures(roles: list[RoleRecord], status: str) -> None:
    """Each trainer's own numbers, and the slowest one."""
    trainers = [role for role in roles if role.name.startswith("trainer-")]
    for role in trainers:
        assert role.step == 6
        assert role.times is not None
        assert role.times["compute"] > 0
        row = next(line for line in status.splitlines() if line.startswith(f"{role.name}\t")).split("\t")
        assert row[4:6] == ["6", f"{role.samples_per_s:.1f}"]
        assert row[6:10] == [f"{1000 * role.times[name]:.1f}" for name in ("data", "compute", "exchange", "update")]
    total = sum(role.samples_per_s or 0 for role in trainers)
    assert f"speed: {total:.1f} samples/s over 2 workers" in status
    assert re.search(r"slowest: worker [01] was slowest, by \d+ %, at ", status)


@pytest.mark.parametrize("log_dir", [None, "elsewhere/words"])
def test_a_first_trainer_with_the_terminal_has_a_log_too(tmp_path: Path, log_dir: str | None) -> None:
    ours, theirs = pty.openpty()
    words = [*TRAIN, "--workers", "2", "--out", "run", *(["--log-dir", log_dir] if log_dir else [])]
    process = subprocess.Popen(
        [*PHALANX, *words], cwd=tmp_path, stdout=theirs, stderr=theirs, env={**os.environ, "TERM": "xterm"}
    )
    os.close(theirs)
    seen = b""
    try:
        while chunk := os.read(ours, 1 << 16):
            seen += chunk
    except OSError:  # how Linux tells that the other side is closed
        pass
    os.close(ours)
    assert process.wait(120) == 0, seen.decode()
    assert b"\x1b[" in seen
    assert b"so far" in seen  # the live view
    folder = tmp_path / (log_dir or "run/logs")
    assert sorted(path.name for path in folder.glob("*.log")) == ["trainer-0.log", "trainer-1.log"]
    for rank in range(2):
        log = (folder / f"trainer-{rank}.log").read_text()
        assert "\x1b" not in log
        assert re.findall(r"step (\d+): loss .* samples/s; this worker .* ms\n", log) == ["2", "4", "6"]
        assert f"worker: trainer-{rank} of 2" in log
    assert "done\nlast: " in (folder / "trainer-0.log").read_text().replace("best", "last")
    if log_dir:
        assert not list((tmp_path / "run/logs").glob("*.log"))
    said = phalanx(tmp_path, "logs", "run").splitlines()
    assert {line.partition(" | ")[0] for line in said} == {"trainer-0", "trainer-1"}
    assert_figures(load_record(tmp_path / "run").roles, phalanx(tmp_path, "status", "run"))


def test_errors_are_in_the_log_of_the_one_who_made_them(tmp_path: Path) -> None:
    words = [*TRAIN, "optim.lr=1e30", "--out", "run", "--log-dir", "words"]
    done = subprocess.run(
        [*PHALANX, *words, "--workers", "2"], cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 2
    assert "error: " in (tmp_path / "words/trainer-0.log").read_text()
    assert f"log: {Path('words')}/trainer-0.log" in done.stderr or "last lines of words/trainer-1.log:" in done.stderr
    one = subprocess.run([*PHALANX, *words[:-4], "--log-dir", "one"], cwd=tmp_path, capture_output=True, text=True)
    assert one.returncode == 2  # a process on its own has a log where one is asked for
    assert "error: " in (tmp_path / "one/trainer-0.log").read_text()


@pytest.mark.lab
def test_figures_of_hosts_that_share_no_disk(tmp_path: Path) -> None:
    with hosts_up(3) as lab:
        launch = [*lab.launch, "-n", "2", "--ips", "h2,h3", "--log-dir", "words"]
        lab.run("h1", [*launch, "--", *TRAIN, "--out", "run"], cwd=lab.own)
        own = lab.own_of("h1")
        assert sorted(path.name for path in (own / "words").iterdir()) == ["trainer-0.log", "trainer-1.log"]
        status = lab.run("h1", [*PHALANX, "status", "run"], cwd=lab.own).stdout
        assert f"logs: {lab.own}/words" in status
        assert_figures(load_record(own / "run").roles, status)
        said = lab.run("h1", [*PHALANX, "logs", "run", "trainer-1"], cwd=lab.own).stdout
        assert said == (own / "words/trainer-1.log").read_text()
        assert said.count("this worker ") == 3
