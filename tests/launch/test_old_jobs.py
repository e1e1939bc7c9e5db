"""Jobs of Paddle's dist_train.py and MXNet's launch.py on several hosts, started as their documents have it: no key."""

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from phalanx.runs.events import EVENTS_FILE, read_events
from tests.conftest import LEAN
from tests.lab.hosts import Lab
from tests.waiting import until

PHALANX = [sys.executable, "-m", "phalanx", "train", "digits", "model.name=wrn10_1", "machine.precision=fp32", *LEAN]
PHALANX += ["train.log_every=2", "--global-batch-size", "96"]
SHORT = ["train.length=6st"]
LONG = ["train.length=100st"]  # some seconds
NO_KEY = "warning: no key is set"
REFUSED = ("HANDSHAKE_FAILED_AUTH", "DISCONNECTED")
# Connects to a parameter server as a trainer does, and prints what becomes of that.
KNOCK = """
import sys, zmq
from zmq.utils.monitor import recv_monitor_message
socket = zmq.Context().socket(zmq.DEALER)
outcomes = zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_HANDSHAKE_FAILED_AUTH | zmq.EVENT_DISCONNECTED
events = socket.get_monitor_socket(outcomes)
socket.connect(sys.argv[1])
assert events.poll(60_000), "nobody listens"
print(recv_monitor_message(events)["event"].name)
"""
# Says hello to a parameter server, which answers, and again when it is told to.
GREET = """
import sys, time, zmq
from pathlib import Path
from phalanx.exchange.pserver.wire import WIRE, Header, MessageKind
socket = zmq.Context().socket(zmq.DEALER)
socket.connect(sys.argv[1])
hello = WIRE.frames(Header(MessageKind.HELLO, worker=7), b"")
socket.send_multipart(hello)
assert socket.poll(120_000), "nobody answers"
socket.recv_multipart()
(Path(sys.argv[2]) / "answered").touch()
while not (Path(sys.argv[2]) / "again").exists():
    time.sleep(0.1)
socket.send_multipart(hello)
print("an answer" if socket.poll(3_000) else "no answer")
"""


def env(text: str) -> dict[str, str]:
    return dict(word.partition("=")[::2] for word in text.split())


class Started:
    """Processes of a job on the lab's hosts, by name, that do not outlive their test."""

    def __init__(self, lab: Lab, folder: Path) -> None:
        self._lab, self._folder = lab, folder
        self._started: dict[str, subprocess.Popen[str]] = {}

    def start(self, name: str, host: str, words: list[str], variables: Mapping[str, str]) -> None:
        self.start_command(name, host, [*PHALANX, *words, "--out", str(self._folder / "run")], variables)

    def start_command(
        self, name: str, host: str, command: list[str], variables: Mapping[str, str] | None = None
    ) -> None:
        self._started[name] = self._lab.start(host, command, cwd=self._folder, env=variables)

    def running(self, name: str) -> bool:
        return self._started[name].poll() is None

    @contextmanager
    def held_up(self) -> Iterator[None]:
        """In the middle of training: the trainers stand still meanwhile, servers and schedulers do not."""
        until(lambda: len(steps(self._folder / "run")) > 2 or self._some_ended(), why=lambda: str(self.kill()))
        assert not self._some_ended(), self.kill()
        roles = [one for one in self._lab.processes(str(self._folder)) if "phalanx" in one.words]
        trainers = [one.pid for one in roles if self._trains(one.pid)]
        assert len(trainers) == 2
        for pid in trainers:
            os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in trainers:
                os.kill(pid, signal.SIGCONT)
            for process in self._started.values():  # nsenter has stopped with the process that it stands before
                process.send_signal(signal.SIGCONT)

    def finish(self) -> dict[str, str]:
        """What each has printed, all having ended well."""
        said = {name: process.communicate(timeout=300)[0] for name, process in self._started.items()}
        codes = {name: process.returncode for name, process in self._started.items()}
        assert set(codes.values()) == {0}, (codes, said)
        return said

    def kill(self) -> dict[str, str]:
        """End what is left. What processes have printed that had not ended well."""
        for one in self._lab.processes(str(self._folder)):
            os.kill(one.pid, signal.SIGKILL)
        return {
            name: process.communicate()[0]
            for name, process in self._started.items()
            if process.stdout and not process.stdout.closed
        }

    def _trains(self, pid: int) -> bool:
        told = Path(f"/proc/{pid}/environ").read_text().split("\0")
        return "PADDLE_TRAINING_ROLE=TRAINER" in told or "DMLC_ROLE=worker" in told

    def _some_ended(self) -> bool:
        return any(process.poll() is not None for process in self._started.values())


@contextmanager
def job(lab: Lab, folder: Path) -> Iterator[Started]:
    started = Started(lab, folder)
    try:
        yield started
    finally:
        started.kill()


def steps(run: Path) -> list[dict[str, Any]]:
    return [record for record in read_events(run) if record["kind"] == "step"] if (run / EVENTS_FILE).exists() else []


def knock(lab: Lab, host: str, address: str) -> str:
    return lab.run(host, [sys.executable, "-c", KNOCK, address]).stdout.strip()


def listens(lab: Lab, host: str, port: int) -> bool:
    return port in listening_ports(lab, host)


def listening_ports(lab: Lab, host: str) -> set[int]:
    """Ports at which a host accepts connections."""
    listed = lab.run(host, ["cat", "/proc/net/tcp", "/proc/net/tcp6"]).stdout.splitlines()
    rows = [line.split() for line in listed]
    return {int(row[1].rpartition(":")[2], 16) for row in rows if len(row) > 3 and row[3] == "0A"}


@pytest.mark.parametrize(
    ("variables", "flags", "both"),
    [
        (
            "DMLC_ROLE=worker DMLC_NUM_WORKER=2 DMLC_NUM_SERVER=2 DMLC_PS_ROOT_URI=127.0.0.1 DMLC_PS_ROOT_PORT=9092",
            ["--update-method", "local"],
            "DMLC_NUM_SERVER=2 contradicts --update-method local",
        ),
        (
            "PADDLE_TRAINING_ROLE=TRAINER PADDLE_TRAINERS=2 PADDLE_TRAINER_IPS=127.0.0.1,127.0.0.2 PADDLE_TRAINER_ID=0",
            ["--workers", "4"],
            "PADDLE_TRAINERS=2 contradicts --workers 4",
        ),
    ],
    ids=["DMLC", "Paddle"],
)
def test_what_variables_and_flags_contradict_is_refused_by_both_names(
    tmp_path: Path, variables: str, flags: list[str], both: str
) -> None:
    environment = {**os.environ, **env(variables)}
    done = subprocess.run(
        [*PHALANX, *flags], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 2
    assert both in done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.lab
@pytest.mark.parametrize("method", [["--update-method=pserver"], []], ids=["pserver typed", "no method"])
def test_paddles_nccl2_example_is_collective(lab: Lab, tmp_path: Path, method: list[str]) -> None:
    variables = env("PADDLE_TRAINING_ROLE=TRAINER PADDLE_TRAINERS=2 PADDLE_TRAINER_IPS=h1,h2 PADDLE_PSERVER_PORT=7160")
    with job(lab, tmp_path) as started:
        for rank, host in enumerate(("h1", "h2")):
            mine = {"PADDLE_TRAINER_ID": str(rank), "PADDLE_CURRENT_IP": host}
            started.start(host, host, [*SHORT, *method], {**variables, **mine})
        said = started.finish()
    assert "collective updates" in said["h1"]  # the first trainer speaks for all
    for text in said.values():
        assert text.count("--update-method pserver is ignored: PADDLE_TRAINING_ROLE=TRAINER") == len(method)
    assert len(steps(tmp_path / "run")[-1]["ranks"]) == 2


@pytest.mark.lab
def test_paddles_servers_and_trainers_on_two_hosts_need_no_key(lab: Lab, tmp_path: Path) -> None:
    """The server knows only the number of trainers. Once they train no other host is let in, nor heard if it was."""
    address = lab.address("h1")
    variables = env(f"PADDLE_TRAINERS=2 PADDLE_PSERVER_PORT=7161 PADDLE_PSERVER_IPS={address}")
    server = env(f"PADDLE_TRAINING_ROLE=PSERVER PADDLE_CURRENT_IP={address}")
    words = [*LONG, "--update-method", "pserver"]
    with job(lab, tmp_path) as started:
        started.start("server", "h1", words, {**variables, **server})
        greet = [sys.executable, "-c", GREET, f"tcp://{address}:7161", str(tmp_path)]
        started.start_command("early", "h3", greet)
        until(lambda: (tmp_path / "answered").exists(), why=lambda: str(started.kill()))
        for rank, host in enumerate(("h1", "h2")):
            mine = env(f"PADDLE_TRAINING_ROLE=TRAINER PADDLE_TRAINER_ID={rank} PADDLE_CURRENT_IP={lab.address(host)}")
            started.start(f"trainer-{rank}", host, words, {**variables, **mine})
        with started.held_up():
            assert knock(lab, "h2", f"tcp://{address}:7161") == "HANDSHAKE_SUCCEEDED"
            assert knock(lab, "h3", f"tcp://{address}:7161") in REFUSED
            (tmp_path / "again").touch()
            until(lambda: not started.running("early"))
        said = started.finish()
    assert said.pop("early") == "no answer\n"
    for name in ("server", "trainer-0"):
        assert said[name].count(f"{NO_KEY}: parameter servers accept connections from {address} and, until") == 1
        assert "PHALANX_KEY_FILE" in said[name]
    assert NO_KEY not in said["trainer-1"]
    assert len(steps(tmp_path / "run")[-1]["ranks"]) == 2


@pytest.mark.lab
def test_a_paddle_server_that_knows_the_trainers_hosts_never_lets_others_in(lab: Lab, tmp_path: Path) -> None:
    variables = env("PADDLE_TRAINING_ROLE=PSERVER PADDLE_PSERVER_IPS=h1 PADDLE_TRAINER_IPS=h1,h2 PADDLE_CURRENT_IP=h1")
    with job(lab, tmp_path) as started:
        started.start("server", "h1", SHORT, {**variables, "PADDLE_PSERVER_PORT": "7162"})
        until(lambda: listens(lab, "h1", 7162))
        assert knock(lab, "h2", f"tcp://{lab.address('h1')}:7162") == "HANDSHAKE_SUCCEEDED"
        assert knock(lab, "h3", f"tcp://{lab.address('h1')}:7162") in REFUSED
    trainer = env("PADDLE_TRAINING_ROLE=TRAINER PADDLE_TRAINER_ID=1 PADDLE_CURRENT_IP=h3")
    refused = lab.run("h3", [*PHALANX, *SHORT], env={**variables, **trainer}, cwd=tmp_path, check=False)
    assert refused.returncode == 2
    assert f"would not accept this trainer, which connects from {lab.address('h3')}" in " ".join(refused.stderr.split())


@pytest.mark.lab
def test_the_dmlc_tracker_on_one_machine_needs_nothing(lab: Lab, tmp_path: Path) -> None:
    """It names the machine by its own address, and takes the scheduler's end for the job's."""
    variables = env(f"DMLC_PS_ROOT_URI={lab.address('h1')} DMLC_PS_ROOT_PORT=9091 DMLC_NUM_WORKER=2 DMLC_NUM_SERVER=1")
    with job(lab, tmp_path) as started:
        for name in ("scheduler", "worker", "worker-1", "server"):
            started.start(name, "h1", LONG, {**variables, "DMLC_ROLE": name.partition("-")[0]})
        with started.held_up():
            assert started.running("scheduler")
            assert not listens(lab, "h1", 9091), "the key can still be had where all have met"
        said = started.finish()
    assert not any(NO_KEY in text for text in said.values()), "nobody else can come"
    assert len(steps(tmp_path / "run")[-1]["ranks"]) == 2


@pytest.mark.lab
def test_mxnets_launcher_over_ssh_needs_no_key(lab: Lab, tmp_path: Path) -> None:
    """dmlc_tracker/ssh.py exports the variables on each host, by its name in the list of hosts."""
    variables = env("DMLC_PS_ROOT_URI=h1 DMLC_PS_ROOT_PORT=9092 DMLC_NUM_WORKER=2 DMLC_NUM_SERVER=1")
    command = shlex.join([*PHALANX, *LONG, "--out", str(tmp_path / "run")])
    with job(lab, tmp_path) as started:
        started.start("scheduler", "h1", LONG, {**variables, "DMLC_ROLE": "scheduler"})
        for name, host in (("server", "h2"), ("worker-0", "h3"), ("worker-1", "h2")):
            told = {**variables, "DMLC_ROLE": name.partition("-")[0], "DMLC_NODE_HOST": host}
            exported = " ".join(f"export {variable}={value};" for variable, value in told.items())
            started.start_command(
                name, "h1", ["ssh", "-F", str(lab.ssh_config), host, f"{exported} cd {tmp_path}; {command}"]
            )
        with started.held_up():
            ports = listening_ports(lab, "h2") - {22}
            assert len(ports) == 2  # messages, and lanes
            for port in ports:
                for host in ("h3", "h4"):  # other processes of the job's hosts do not have its key, either
                    assert knock(lab, host, f"tcp://{lab.address('h2')}:{port}") in REFUSED
            assert started.running("scheduler")
        said = started.finish()
    hosts = f"{lab.address('h2')}, {lab.address('h3')}"
    assert said["server"].count(NO_KEY) == 1
    assert f"accept connections from {hosts} only, and the processes have agreed on a key at h1:9092" in said["server"]
    assert len(steps(tmp_path / "run")[-1]["ranks"]) == 2
