"""`phalanx doctor --job` on real jobs: every socket with its purpose; and no socket listens where it need not."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from phalanx.launch.record import load_record
from phalanx.machine.listening import listening_sockets
from phalanx.runs.events import EVENTS_FILE, read_events
from tests.conftest import LEAN
from tests.lab.hosts import Lab, hosts_up
from tests.launch.sleepers import mine
from tests.waiting import until

PHALANX = [sys.executable, "-m", "phalanx"]
LONG = ["train", "digits", *LEAN, "model.name=wrn10_1", "train.length=100000st", "train.log_every=1"]
GLOO = "gloo (torch), or the user's own code"
HEARTBEAT = "heartbeats of workers"


def trains(run: Path) -> bool:
    return (run / EVENTS_FILE).exists() and any(event["kind"] == "step" for event in read_events(run))


@contextmanager
def training(run: Path, *words: str) -> Iterator["subprocess.Popen[bytes]"]:
    process = subprocess.Popen([*PHALANX, *LONG, *words, "--out", str(run)], stdout=subprocess.DEVNULL)
    try:
        until(lambda: trains(run) or process.poll() is not None)
        assert process.poll() is None
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGTERM)
        process.wait(120)


def shown(*words: str) -> list[list[str]]:
    """The rows of its table."""
    done = subprocess.run([*PHALANX, "doctor", "--job", *words], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return rows(done.stdout)


def rows(text: str) -> list[list[str]]:
    lines = [line.split("\t") for line in text.splitlines() if "\t" in line]
    assert lines[0] == ["process", "pid", "address", "what for", "who may talk to it"]
    return lines[1:]


def test_a_collective_job_on_one_machine(tmp_path: Path) -> None:
    with training(tmp_path / "run", "--workers", "2"):
        table = shown(str(tmp_path / "run"))
        pids = mine(load_record(tmp_path / "run").id)
        by_pid = shown(str(pids[-1]))
        hosts = {place.host for place in listening_sockets(pids)}
    assert table == by_pid
    assert hosts == {"127.0.0.1"}, "of TCP: nobody off this machine reaches it"
    found = {(process, purpose): who for process, _, _, purpose, who in table}
    assert set(found) == {
        ("launcher", "phalanx status and phalanx stop"),
        *((f"trainer-{rank}", purpose) for rank in (0, 1) for purpose in (GLOO, HEARTBEAT)),
    }
    assert found["launcher", "phalanx status and phalanx stop"].startswith("this user only")
    assert found["trainer-1", HEARTBEAT] == "processes with the job's key"
    assert found["trainer-1", GLOO] == "any user of this machine: torch cannot authenticate it"


def test_a_job_with_servers_on_one_machine_has_no_port(tmp_path: Path) -> None:
    with training(tmp_path / "run", "--update-method", "pserver", "--servers", "1", "--data-servers", "1"):
        table = shown(str(tmp_path / "run"))
        assert not any(place.host for place in listening_sockets(mine(load_record(tmp_path / "run").id)))
    found = {(process, purpose): who for process, _, _, purpose, who in table}
    assert found["server-0", "parameters and gradients"] == "this user only (its folder has mode 700)"
    assert found["data-0", "batches"] == "this user only (its folder has mode 700)"


def test_torchrun_by_its_process(tmp_path: Path) -> None:
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "phalanx"]
    run = tmp_path / "run"
    process = subprocess.Popen([*launch, *LONG, "--out", str(run)], stdout=subprocess.DEVNULL)
    try:
        until(lambda: trains(run) or process.poll() is not None)
        table = shown(str(process.pid))
    finally:
        process.terminate()
        process.wait(120)
    ours = [row for row in table if row[0].startswith("trainer-")]
    assert {row[0] for row in ours} == {"trainer-0", "trainer-1"}
    assert {row[2].rpartition(":")[0] for row in ours} == {"127.0.0.1"}
    assert all("torch cannot authenticate gloo" in row[4] for row in ours)
    assert len(table) > len(ours), "torchrun's own store"


def test_without_a_job_it_says_so(tmp_path: Path) -> None:
    for word, what in ((str(tmp_path), "does not run on this host"), (str(os.getpid()), "belongs to no job")):
        done = subprocess.run([*PHALANX, "doctor", "--job", word], capture_output=True, text=True, timeout=120)
        assert done.returncode == 2
        assert what in done.stderr


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with hosts_up(2) as up:
        yield up


@pytest.mark.lab
@pytest.mark.parametrize("method", ["collective", "pserver"])
def test_a_job_on_two_hosts_listens_at_its_addresses_alone(lab: Lab, tmp_path: Path, method: str) -> None:
    run = tmp_path / "run"
    process = lab.start(
        "h1",
        [*lab.launch, "-n", "2", "--ips", "h1,h2", "--", *LONG, "--update-method", method, "--out", str(run)],
        cwd=tmp_path,
    )
    try:
        until(lambda: trains(run) or process.poll() is not None)
        assert process.poll() is None, process.stdout and process.stdout.read()
        found = {
            host: rows(lab.run(host, [*PHALANX, "doctor", "--job", *words], cwd=tmp_path).stdout)
            for host, words in (("h1", [str(run)]), ("h2", []))
        }
        job = load_record(run).id
        roles = lab.processes(f"PHALANX_JOB={job}")
        places = {
            host: {
                place.host for place in listening_sockets(one.pid for one in roles if one.host == host) if place.host
            }
            for host in ("h1", "h2")
        }
    finally:
        for _ in range(2 if process.poll() is None else 0):
            os.kill(lab.inner(process), signal.SIGTERM)
        process.communicate(timeout=120)
    assert {one.host for one in roles} == {"h1", "h2"}
    for host, listening in places.items():
        assert listening <= {lab.address(host)}, f"{host} listens elsewhere, too"
    assert any(places.values())
    purposes = {(row[0], row[3]): row for table in found.values() for row in table}
    if method == "collective":
        store = purposes["trainer-0", "torch's store"]
        assert store[2].startswith("10.77.0.1:")
        assert "anyone who reaches 10.77.0.1: torch cannot authenticate it; texts" in store[4]
        assert purposes["trainer-1", GLOO][4].startswith("anyone who reaches 10.77.0.2")
        assert purposes["trainer-1", HEARTBEAT][4] == "processes with the job's key"
    else:
        server = next(row for (_, purpose), row in purposes.items() if purpose == "parameters and gradients")
        assert server[4] == "processes with the job's key"
