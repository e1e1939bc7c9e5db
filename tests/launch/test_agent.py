"""The agent over real pipes, as ssh connects it: its events, the roles that it starts, and that it leaves nothing."""

import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from phalanx.config.role import Role, role_to_data
from phalanx.launch.messages import decode, encode
from phalanx.launch.policy import Policy
from phalanx.machine.processes import marked, start_time
from phalanx.net.code import digest_here
from tests.launch.sleepers import mine, sleepers
from tests.waiting import until

# Ignores TERM, and has a child in a session of its own which ignores it too.
STUBBORN = """
import signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
subprocess.Popen(["sleep", sys.argv[1]], start_new_session=True)
print("here", flush=True)
time.sleep(1000)
"""


class PipedAgent:
    """An agent at the other end of two pipes."""

    def __init__(self, *words: str) -> None:
        words = words or ("-m", "phalanx", "agent")
        self.process = subprocess.Popen([sys.executable, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def send(self, **message: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(encode(message))
        self.process.stdin.flush()

    def receive(self, *kinds: str) -> dict[str, Any]:
        """The next message of one of these kinds."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            message = decode(line)
            assert message is not None, line
            if message["event"] in kinds:
                return message
        raise AssertionError("the agent is gone")

    def prepare(self, run: Path, **more: Any) -> dict[str, Any]:
        defaults = {"setup": "", "environment": {}, "cwd": str(run.parent), "new_run": True, "marker": "none"}
        self.send(request="prepare", run=str(run), **{**defaults, **more})
        return self.receive("ready", "error")

    def start(self, role: str, argv: list[Any], given: Any = None, **environment: str) -> None:
        more = {"environment": environment, "release_ports": [role], "terminal": False}
        self.send(request="start", role=role, argv=argv, input=given, **more)


@pytest.fixture
def agent() -> Iterator[PipedAgent]:
    piped = PipedAgent()
    yield piped
    piped.process.kill()
    piped.process.wait()


def sleeping(seconds: str) -> list[int]:
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if (entry / "cmdline").read_bytes() == f"sleep\0{seconds}\0".encode():
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def test_hello_and_unchanged_arguments_and_output(agent: PipedAgent, tmp_path: Path) -> None:
    hello = agent.receive("hello")
    assert hello["digest"] == digest_here()
    given, awkward = {"name": "über\n"}, ["a b", "$HOME", '"', "'", "line\nbreak", "ü", "`id`", "", "--", "{}"]
    ready = agent.prepare(tmp_path / "run")
    assert ready == {"event": "ready", "run": str(tmp_path / "run"), "shared": False}
    echo = "import os,sys,json; print(json.dumps([sys.argv[1:], os.getcwd(), open(sys.argv[-1]).read()]))"
    echo += "; sys.stdout.flush(); os.write(2, b'\\xff' + b'x' * 200_000)"
    agent.start("trainer-0", [{"local": "python"}, "-c", echo, *awkward, {"local": "input"}], given)
    out, err = "", ""
    while (message := agent.receive("output", "exit"))["event"] == "output":
        out, err = (out + message["text"], err) if message["stream"] == "out" else (out, err + message["text"])
    assert message["code"] == 0
    words, folder, sent = json.loads(out)
    assert (words[:-1], folder, sent) == (awkward, str(tmp_path), json.dumps(given))
    assert err.encode("utf-8", "surrogateescape") == b"\xff" + b"x" * 200_000
    agent.send(request="bye")
    assert agent.process.wait(60) == 0
    assert not Path(words[-1]).exists()  # the input file is removed


@pytest.mark.parametrize("how", ["request", "input ends", "SIGTERM"])
def test_roles_that_ignore_sigterm_are_ended_with_their_children(agent: PipedAgent, tmp_path: Path, how: str) -> None:
    agent.receive("hello")
    agent.prepare(tmp_path / "run")
    seconds = f"7{os.getpid()}"
    agent.start("trainer-0", [{"local": "python"}, "-c", STUBBORN, seconds])
    agent.receive("output")
    until(lambda: len(sleeping(seconds)) == 1)
    if how == "request":
        agent.send(request="end", grace_s=0.2, roles=None)
        agent.receive("ended")
    elif how == "input ends":
        assert agent.process.stdin is not None
        agent.process.stdin.close()
    else:
        agent.process.send_signal(signal.SIGTERM)
    until(lambda: not sleeping(seconds))
    if how != "request":
        assert agent.process.wait(60) == 0


@pytest.mark.slow
def test_an_agent_that_was_stopped_does_not_blame_the_launcher() -> None:
    agent = PipedAgent("-c", "from phalanx.launch import agent; agent.LAUNCHER_SILENCE_S = 3.0; agent.main()")
    try:
        agent.receive("hello")
        time.sleep(0.5)  # it is to wait for a request
        agent.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, agent.process.pid, os.WSTOPPED | os.WNOWAIT)
        agent.send(request="ping")
        time.sleep(4.0)
        agent.process.send_signal(signal.SIGCONT)
        agent.receive("pong")
        assert agent.process.wait(60) == 0  # and a launcher that says nothing more is gone
    finally:
        agent.process.kill()
        agent.process.wait()


def test_roles_end_when_the_agent_is_killed(agent: PipedAgent, tmp_path: Path) -> None:
    agent.receive("hello")
    agent.prepare(tmp_path / "run")
    job = sleepers(tmp_path / "run", Policy(independent=False))
    variables = {"PHALANX_JOB": f"test-{os.getpid()}"}
    given = {"role": role_to_data(Role(run=tmp_path)), "request": job.request}
    agent.start("trainer-0", list(job.argv), given, **variables)
    pid = agent.receive("started")["pid"]
    agent.receive("output")
    born = start_time(pid)
    agent.process.kill()
    until(lambda: start_time(pid) != born)
    until(lambda: not mine(variables["PHALANX_JOB"]))  # nor its detached children


def test_ending_trainer_1_does_not_end_trainer_10(agent: PipedAgent, tmp_path: Path) -> None:
    agent.receive("hello")
    agent.prepare(tmp_path / "run")
    agent.start("trainer-10", ["sleep", "1000"])
    other = agent.receive("started")["pid"]
    agent.start("trainer-1", ["true"])
    assert agent.receive("exit") == {"event": "exit", "role": "trainer-1", "code": 0}
    assert start_time(other) is not None
    agent.send(request="end", grace_s=60, roles=["trainer-10"])
    assert agent.receive("exit") == {"event": "exit", "role": "trainer-10", "code": -signal.SIGTERM}


def test_errors_on_a_host_are_reported(agent: PipedAgent, tmp_path: Path) -> None:
    agent.receive("hello")
    (tmp_path / "file").write_text("")
    error = agent.prepare(tmp_path / "file" / "run")
    assert "Not a directory" in error["why"]
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "events.jsonl").write_text("")
    assert "holds a run already" in agent.prepare(tmp_path / "taken")["what"]
    assert "ended with code 3" in agent.prepare(tmp_path / "run", setup="echo oh no; exit 3")["what"]
    assert agent.prepare(tmp_path / "run", setup="touch made")["event"] == "ready"
    assert (tmp_path / "made").exists()
    agent.start("trainer-0", ["/no/such/program"])
    ended = agent.receive("exit")
    assert ended["code"] == 127
    assert "No such file" in ended["why"]


def test_what_fails_for_want_of_memory_is_reported(agent: PipedAgent, tmp_path: Path) -> None:
    agent.receive("hello")
    agent.prepare(tmp_path / "run")
    agent.send(request="ping")
    agent.receive("pong")
    pages = int(Path(f"/proc/{agent.process.pid}/statm").read_text().split()[0])
    room = pages * resource.getpagesize() + (1 << 20)  # less than the stack of a thread
    resource.prlimit(agent.process.pid, resource.RLIMIT_AS, (room, room))
    agent.send(request="read", path="config.yaml", offset=0)
    error = agent.receive("chunk", "error")
    assert "can't start new thread" in error["why"], error


def test_ports_are_held_until_their_role_starts_and_come_from_the_range(agent: PipedAgent, tmp_path: Path) -> None:
    agent.receive("hello")
    agent.prepare(tmp_path / "run")
    listen = {"request": "listen", "names": ["server-0", "master"], "files": ["master"], "peers": [], "iface": None}
    agent.send(**listen, ports=None)
    addresses = agent.receive("listening")["addresses"]
    assert addresses["server-0"].startswith("ipc://")
    assert addresses["master"].startswith("file:///")
    store = addresses["master"]
    agent.send(**{**listen, "names": ["server-0", "data-0", "master"]}, ports=[23000, 23009])
    addresses = agent.receive("listening")["addresses"]
    assert addresses.pop("master") not in ("", store), "a new group has a new store"
    ports = {int(address.rpartition(":")[2]) for address in addresses.values()}
    assert len(ports) == 2
    assert ports <= set(range(23000, 23010))
    agent.send(**{**listen, "names": ["a", "b", "c"]}, ports=[23020, 23021])
    assert "3 free ports are needed" in agent.receive("error")["what"]
    agent.send(**{**listen, "iface": "no-such0"}, ports=None)
    assert "no-such0" in agent.receive("error")["what"]


def test_marks_are_exact() -> None:
    process = subprocess.Popen(["sleep", "30"], env={"PHALANX_AGENT": "abc/trainer-1"})
    try:
        assert marked("abc/") == [process.pid]
        assert marked("abc/trainer-1") == [process.pid]
        assert not marked("bc/")
    finally:
        process.kill()
        process.wait()
