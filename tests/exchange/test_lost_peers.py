"""Jobs started without our launchers, on one machine and on two hosts: a worker that is gone or silent is named.

`exchange.timeout_s` is far beyond what these tests wait for: it is never what ends a job here.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from phalanx.net.interfaces import free_port
from phalanx.runs.events import read_events
from tests.conftest import LEAN
from tests.lab.hosts import Lab, hosts_up
from tests.waiting import until

TRAIN = [sys.executable, "-m", "phalanx", "train", "digits", "model.name=wrn10_1", "machine.precision=fp32", *LEAN]
ENDLESS = ["train.length=1000000st", "eval.every=100%", "checkpoint.every=100%", "train.log_every=1"]
QUICK = ["exchange.silence_s=6", "exchange.timeout_s=3000"]


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with hosts_up(2) as up:
        yield up


@contextmanager
def ending() -> Iterator[list["subprocess.Popen[str]"]]:
    """Processes that do not outlive their test."""
    started: list[subprocess.Popen[str]] = []
    try:
        yield started
    finally:
        for process in started:
            for inner in _children(process.pid):  # nsenter does not take along what it started on a host
                with suppress(ProcessLookupError):
                    os.kill(inner, signal.SIGKILL)
            process.kill()
            process.wait()


def _children(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:  # it has ended
        return []


def here(variables: Mapping[str, str], *words: str) -> "subprocess.Popen[str]":
    environment = {**os.environ, **variables}
    return subprocess.Popen(
        [*TRAIN, *words], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def steps(run: Path) -> int:
    events = read_events(run) if (run / "events.jsonl").exists() else []
    return max((event["step"] for event in events if event["kind"] == "step"), default=0)


def said(process: "subprocess.Popen[str]") -> str:
    return process.communicate(timeout=180)[0]


def training(run: Path, *processes: "subprocess.Popen[str]") -> None:
    """Until some steps are made."""

    def begun() -> bool:
        for process in processes:
            assert process.poll() is None, process.communicate()[0]
        return steps(run) >= 3

    until(begun)


def dmlc(host: str, workers: int, **more: str) -> Callable[[str], dict[str, str]]:
    place = {"DMLC_PS_ROOT_URI": host, "DMLC_PS_ROOT_PORT": str(free_port("127.0.0.1")), "PHALANX_KEY": "secret"}
    counts = {"DMLC_NUM_WORKER": str(workers), "DMLC_NUM_SERVER": "1"}
    return lambda role: {"DMLC_ROLE": role, **place, **counts, **more}


def ranks(host: str, world: int) -> Callable[[int], dict[str, str]]:
    """As torchrun's variables, exported by hand."""
    place = {"MASTER_ADDR": host, "MASTER_PORT": str(free_port("127.0.0.1")), "WORLD_SIZE": str(world)}
    return lambda rank: {**place, "RANK": str(rank), "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}


@contextmanager
def partition(lab: Lab) -> Iterator[None]:
    """Nothing that one host sends reaches the other, without any error at either."""
    rules = [("h1", lab.address("h2")), ("h2", lab.address("h1"))]
    try:
        for host, other in rules:
            lab.run(host, ["iptables", "-A", "INPUT", "-s", other, "-j", "DROP"])
        yield
    finally:
        for host, _ in rules:
            lab.run(host, ["iptables", "-F", "INPUT"])


def test_a_killed_worker_of_a_dmlc_job_started_by_hand(tmp_path: Path) -> None:
    run, role = tmp_path / "run", dmlc("127.0.0.1", 2)
    words = [*ENDLESS, *QUICK, "--out", str(run)]
    with ending() as started:
        started += [here(role(name), *words) for name in ("scheduler", "server", "worker", "worker")]
        training(run, *started[1:])
        started[3].send_signal(signal.SIGKILL)
        output = said(started[2])
        assert started[2].returncode == 2, output
        assert " at 127.0.0.1 is gone: its process ended" in output
        said(started[1])
        assert started[1].returncode == 0


@pytest.mark.lab
def test_a_killed_worker_of_a_dmlc_job_on_another_host(lab: Lab, tmp_path: Path) -> None:
    run, role = tmp_path / "run", dmlc(lab.address("h1"), 2)
    words = [*TRAIN, *ENDLESS, *QUICK, "--out", str(run)]
    with ending() as started:
        started += [lab.start("h1", words, env=role(name), cwd=tmp_path) for name in ("scheduler", "server", "worker")]
        started.append(lab.start("h2", words, env=role("worker"), cwd=tmp_path))
        training(run, *started[1:])
        os.kill(lab.inner(started[3]), signal.SIGKILL)
        output = said(started[2])
        assert f" at {lab.address('h2')} is gone: its connection broke, or was silent for 6 s" in output
        said(started[1])
        said(started[0])  # the scheduler stays until all others have ended
        assert not lab.processes(str(run))


@pytest.mark.lab
def test_a_partition_ends_a_collective_job_on_both_sides(lab: Lab, tmp_path: Path) -> None:
    run, role = tmp_path / "run", ranks(lab.address("h1"), 2)
    words = [*TRAIN, *ENDLESS, *QUICK, "--out", str(run)]
    with ending() as started:
        started += [lab.start(f"h{rank + 1}", words, env=role(rank), cwd=tmp_path) for rank in range(2)]
        training(run, *started)
        with partition(lab):
            outputs = [said(process) for process in started]
    for rank, output in enumerate(outputs):
        other = f"trainer-{1 - rank} on h{2 - rank} ({lab.address(f'h{2 - rank}')})"
        assert f"error: {other} is gone or silent" in output
        assert "no sign of life for 6 s: its host or the network between is down" in output
        assert "Traceback" not in output
    assert [process.returncode for process in started] == [2, 2]


@pytest.mark.lab
@pytest.mark.parametrize("mode", ["sync", "ssp:2"])  # in both a step says that both workers are there
def test_a_partition_in_a_pserver_job(lab: Lab, tmp_path: Path, mode: str) -> None:
    """The server and one worker here, the other worker there: sync ends on both sides, ssp goes on and heals."""
    run, role = tmp_path / "run", dmlc(lab.address("h1"), 2)
    words = [*TRAIN, *ENDLESS, *QUICK, f"exchange.mode={mode}", "--out", str(run), "--log-dir", str(tmp_path)]
    worker_0 = {**role("worker"), "DMLC_WORKER_ID": "0"}
    with ending() as started:
        started += [lab.start("h1", words, env=role(name), cwd=tmp_path) for name in ("scheduler", "server")]
        started.append(lab.start("h1", words, env=worker_0, cwd=tmp_path))
        started.append(lab.start("h2", words, env={**worker_0, "DMLC_WORKER_ID": "1"}, cwd=tmp_path))
        training(run, *started[1:])
        gone = f"worker 1 at {lab.address('h2')} is gone: its connection broke, or was silent for 6 s"
        server_log = tmp_path / "server-0.log"
        with partition(lab):
            if mode == "sync":
                cut_off, here_ = said(started[3]), said(started[2])
                assert gone in here_
            else:
                until(lambda: gone in server_log.read_text())
                until(lambda: "waiting for it" in (tmp_path / "trainer-1.log").read_text())
                reached = steps(run)
                until(lambda: steps(run) > reached + 20)
                assert started[3].poll() is None
        if mode != "sync":
            until(lambda: "is back" in server_log.read_text())
            reached = steps(run)
            until(lambda: steps(run) > reached + 20)  # in ssp the first worker does not get ahead of the other one
            for process in started[2:]:
                os.kill(lab.inner(process), signal.SIGINT)
            cut_off, here_ = said(started[3]), said(started[2])
            assert [process.returncode for process in started[2:]] == [130, 130]
        server = said(started[1])
    assert f"parameter server 0 at tcp://{lab.address('h1')}:" in cut_off
    assert "no sign of life for 6 s: its host or the network between is down" in cut_off
    if mode != "sync":
        assert f"{gone}; the others go on without it" in server
        assert f"worker 1 at {lab.address('h2')} is back, and goes on with step " in server


def test_a_stopped_worker_of_a_collective_job_started_by_hand(tmp_path: Path) -> None:
    """The other one says that it is stopped; when it continues, it does not blame the other one."""
    run, role = tmp_path / "run", ranks("127.0.0.1", 2)
    with ending() as started:
        started += [here(role(rank), *ENDLESS, *QUICK, "--out", str(run)) for rank in range(2)]
        training(run, *started)
        started[1].send_signal(signal.SIGSTOP)
        output = said(started[0])
        assert started[0].returncode == 2, output
        assert "(127.0.0.1) is stopped (by SIGSTOP or Ctrl-Z; SIGCONT continues it)" in output
        assert "error: trainer-1 on " in output
        started[1].send_signal(signal.SIGCONT)
        output = said(started[1])
        assert started[1].returncode == 2, output
        assert "error: trainer-1 was taken for lost after 6 s of silence" in output
        assert "it stood still for " in output


def launch(lab: Lab, *words: str) -> list[str]:
    hosts = ["--ips", "h1,h2", "--port-range", "17000-17100", "-n", "2"]
    return [*lab.launch, *hosts, *words]


@pytest.mark.lab
def test_a_firewall_that_admits_only_the_range_of_ports(lab: Lab, tmp_path: Path) -> None:
    rules = ["! --syn -j ACCEPT", "--syn --dport 22 -j ACCEPT", "--syn --dport 17000:17100 -j ACCEPT", "--syn -j DROP"]
    for host in lab.names:
        for rule in rules:
            lab.run(host, ["iptables", "-A", "INPUT", "-i", "eth0", "-p", "tcp", *rule.split()])
    settings = [*TRAIN[4:], "train.length=4st", *QUICK]
    try:
        outputs = []
        for options, out in (([], "closed"), (["-s", "2"], "served")):  # not at once: they would take the same ports
            with ending() as started:
                words = launch(lab, *options, "--", "train", *settings, "--out", out)
                started.append(lab.start("h1", words, cwd=tmp_path))
                outputs.append((said(started[0]), started[0].returncode))
    finally:
        for host in lab.names:
            lab.run(host, ["iptables", "-F", "INPUT"])
    assert [code for _, code in outputs] == [2, 0], outputs
    output = outputs[0][0]
    one, other = ("trainer-0 on h1", lab.address("h1")), ("trainer-1 on h2", lab.address("h2"))
    pairs = ((*one, *other), (*other, *one))
    ends = [f"{me} ({mine}) cannot reach {you} at {yours}:" for me, mine, you, yours in pairs]
    assert any(end in output for end in ends), output
    assert "net.ipv4.ip_local_port_range" in output
    assert "--update-method pserver" in output
    assert steps(tmp_path / "served") == 4


def listening(lab: Lab, host: str) -> tuple[int, int]:
    """At how many ports processes of a host listen, its sshd left out: in the range of `launch`, and elsewhere."""
    ports = set()
    for line in lab.run(host, ["ss", "-H", "-l", "-t", "-n", "-p"]).stdout.splitlines():
        if '"sshd"' not in line:
            ports.add(int(line.split()[3].rpartition(":")[2]))
    inside = {port for port in ports if 17000 <= port <= 17100}
    return len(inside), len(ports - inside)


@pytest.mark.lab
@pytest.mark.parametrize(
    ("servers", "expected"),
    [
        (["-s", "1"], [(2, 0), (0, 0)]),  # the server, and its lanes
        ([], [(2, 1), (1, 1)]),  # the first trainer's store, and for each a port that says it is there; and gloo's
    ],
    ids=["pserver", "collective"],
)
def test_listeners_keep_to_the_range_of_ports(
    lab: Lab, tmp_path: Path, servers: list[str], expected: list[tuple[int, int]]
) -> None:
    run = tmp_path / "run"
    words = [*servers, "--", "train", *TRAIN[4:], *ENDLESS, *QUICK, "--out", str(run)]
    with ending() as started:
        started.append(lab.start("h1", launch(lab, *words), cwd=tmp_path))
        training(run, *started)
        assert [listening(lab, host) for host in lab.names] == expected
        os.kill(lab.inner(started[0]), signal.SIGINT)
        said(started[0])
    until(lambda: not lab.processes(str(run)))


def test_a_trainer_prints_which_one_it_waits_for(tmp_path: Path) -> None:
    """The second of a job whose first never comes, and the first of another one whose second never comes."""
    roles = [ranks("127.0.0.1", 2) for _ in range(2)]
    with ending() as started:
        for rank, role in zip((1, 0), roles, strict=True):
            started.append(here(role(rank), "exchange.timeout_s=12", "--out", str(tmp_path / f"run-{rank}")))
        second, first = (said(process) for process in started)
    place = f"at 127.0.0.1:{roles[0](0)['MASTER_PORT']}"
    assert f"waits for trainer-0 {place}: connection refused" in second
    assert f"cannot reach trainer-0 {place}" in second
    assert started[0].returncode == 2
    assert "waits for trainer-1; 1 of 2 are here" in first
    assert "waited in vain for trainer-1" in first
