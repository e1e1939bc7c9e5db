"""Processes that run different versions of Phalanx do not work together: two copies of the source, one edited."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import phalanx
from phalanx.net.code import digest_of
from tests.conftest import LEAN
from tests.engine.test_agreement import start_two
from tests.waiting import until

PSERVER = ("--update-method", "pserver", "--servers", "1")


@pytest.fixture(scope="module")
def edited(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the source with a line more, as PYTHONPATH has it; with what Python has compiled of the other files."""
    copy = tmp_path_factory.mktemp("edited") / "phalanx"
    shutil.copytree(Path(phalanx.__file__).parent, copy)
    with (copy / "optim" / "update.py").open("a") as file:
        file.write("# one line more\n")
    return copy.parent


def named(said: str, edited: Path, one: str, other: str) -> bool:
    """Whether a message has both processes, with host, version, digest and place, and what to do."""
    code = digest_of(edited / "phalanx")
    host = os.uname().nodename
    return (
        "two versions of phalanx are in this job" in said
        and f"{one} on {host} has phalanx {phalanx.__version__}, code " in said
        and f"{other} on {host} has phalanx {phalanx.__version__}, code " in said
        and f"code {code} ({edited / 'phalanx'})" in said
        and "install the same version" in said
    )


def test_workers_of_a_collective_job(tmp_path: Path, edited: Path) -> None:
    for code, said in start_two(tmp_path, (), (), second={"PYTHONPATH": str(edited)}):
        assert code == 2, said
        assert named(said, edited, "trainer-0", "trainer-1"), said
    assert not (tmp_path / "run" / "events.jsonl").exists()


def test_workers_of_a_job_with_servers(tmp_path: Path, edited: Path) -> None:
    first, second, _ = start_two(tmp_path, PSERVER, PSERVER, PSERVER, second={"PYTHONPATH": str(edited)})
    assert second[0] == 2
    assert named(second[1], edited, "trainer-1", "server-0"), second
    assert first[0] == 2
    assert not (tmp_path / "run" / "events.jsonl").exists()


def test_a_parameter_server(tmp_path: Path, edited: Path) -> None:
    worker, _ = start_two(tmp_path, PSERVER, PSERVER, second={"PYTHONPATH": str(edited)})
    assert worker[0] == 2
    assert named(worker[1], edited, "trainer-0", "server-0"), worker
    assert not (tmp_path / "run" / "events.jsonl").exists()


def test_a_data_server(tmp_path: Path, edited: Path) -> None:
    command, place = [sys.executable, "-m", "phalanx"], tmp_path / "socket"
    serving = subprocess.Popen(
        [*command, "serve-data", "digits", "--bind", f"ipc://{place}", "--threads", "1"],
        env={**os.environ, "PYTHONPATH": str(edited)},
        stdout=subprocess.DEVNULL,
    )
    try:
        until(place.exists)
        train = ["train", "digits", *LEAN, "train.length=2st", "model.name=wrn10_1", "--out", str(tmp_path / "run")]
        train += ["--data-service", f"ipc://{place}", "data.service_timeout_s=20"]
        refused = subprocess.run([*command, *train], capture_output=True, text=True, timeout=300)
    finally:
        serving.terminate()
        serving.wait(60)
    assert refused.returncode == 2
    assert named(refused.stdout + refused.stderr, edited, "trainer-0", "the data server"), refused
