"""The agent, spoken to through real pipes as ssh would: what it says, what it starts, and that it leaves nothing."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from phalanx.config.role import Role, role_to_data
from phalanx.launch.code import digest_here
from phalanx.launch.messages import decode, encode
from phalanx.launch.policy import Policy
from phalanx.machine.processes import marked, start_time
from tests.lab.hosts import until
from tests.launch.sleepers import mine, sleepers

# Ignores TERM, and has a child in a session of its own which ignores it too.
STUBBORN = """
import signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
subprocess.Popen(["sleep", sys.argv[1]], start_new_session=True)
print("here", flush=True)
time.sleep(1000)
"""


class Spoken:
    """An agent at the other end of two pipes."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "phalanx", "agent"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def say(self, **message: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(encode(message))
        self.process.stdin.flush()

    def hear(self, *kinds: str) -> dict[str, Any]:
        """The next message of one of these kinds."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            message = decode(line)
            assert message is not None, line
            if message["say"] in kinds:
                return message
        raise AssertionError("the agent is gone")

    def prepare(self, run: Path, **more: Any) -> dict[str, Any]:
        told = {"setup": "", "environment": {}, "cwd": str(run.parent), "fresh": True, "mark": "none"}
        self.say(do="prepare", run=str(run), **{**told, **more})
        return self.hear("ready", "trouble")

    def start(self, role: str, argv: list[Any], given: Any = None, **environment: str) -> None:
        more = {"environment": environment, "releases": [role], "shown": False}
        self.say(do="start", role=role, argv=argv, input=given, **more)


@pytest.fixture
def agent() -> Iterator[Spoken]:
    spoken = Spoken()
    yield spoken
    spoken.process.kill()
    spoken.process.wait()


def sleeping(seconds: str) -> list[int]:
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if (entry / "cmdline").read_bytes() == f"sleep\0{seconds}\0".encode():
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def test_it_says_who_it_is_and_passes_words_and_output_on_unchanged(agent: Spoken, tmp_path: Path) -> None:
    hello = agent.hear("hello")
    assert hello["digest"] == digest_here()
    given, awkward = {"name": "über\n"}, ["a b", "$HOME", '"', "'", "line\nbreak", "ü", "`id`", "", "--", "{}"]
    ready = agent.prepare(tmp_path / "run")
    assert ready == {"say": "ready", "run": str(tmp_path / "run"), "shared": False}
    echo = "import os,sys,json; print(json.dumps([sys.argv[1:], os.getcwd(), open(sys.argv[-1]).read()]))"
    echo += "; sys.stdout.flush(); os.write(2, b'\\xff' + b'x' * 200_000)"
    agent.start("trainer-0", [{"own": "python"}, "-c", echo, *awkward, {"own": "input"}], given)
    out, err = "", ""
    while (message := agent.hear("out", "exit"))["say"] == "out":
        out, err = (out + message["text"], err) if message["stream"] == "out" else (out, err + message["text"])
    assert message["code"] == 0
    words, folder, sent = json.loads(out)
    assert (words[:-1], folder, sent) == (awkward, str(tmp_path), json.dumps(given))
    assert err.encode("utf-8", "surrogateescape") == b"\xff" + b"x" * 200_000
    agent.say(do="bye")
    assert agent.process.wait(60) == 0
    assert not Path(words[-1]).exists()  # what was sent along is cleaned up


@pytest.mark.parametrize("way", ["told", "input ends", "terminated"])
def test_stubborn_roles_and_what_left_their_group_are_ended(agent: Spoken, tmp_path: Path, way: str) -> None:
    agent.hear("hello")
    agent.prepare(tmp_path / "run")
    seconds = f"7{os.getpid()}"
    agent.start("trainer-0", [{"own": "python"}, "-c", STUBBORN, seconds])
    agent.hear("out")
    until(lambda: len(sleeping(seconds)) == 1)
    if way == "told":
        agent.say(do="end", grace_s=0.2, roles=None)
        agent.hear("ended")
    elif way == "input ends":
        assert agent.process.stdin is not None
        agent.process.stdin.close()
    else:
        agent.process.send_signal(signal.SIGTERM)
    until(lambda: not sleeping(seconds))
    if way != "told":
        assert agent.process.wait(60) == 0


def test_roles_end_when_the_agent_is_killed(agent: Spoken, tmp_path: Path) -> None:
    agent.hear("hello")
    agent.prepare(tmp_path / "run")
    job = sleepers(tmp_path / "run", Policy(forgiving=False))
    variables = {"PHALANX_JOB": f"test-{os.getpid()}"}
    given = {"role": role_to_data(Role(run=tmp_path)), "request": job.request}
    agent.start("trainer-0", list(job.argv), given, **variables)
    pid = agent.hear("started")["pid"]
    agent.hear("out")
    born = start_time(pid)
    agent.process.kill()
    until(lambda: start_time(pid) != born)
    until(lambda: not mine(variables["PHALANX_JOB"]))  # nor what left the role's group


def test_the_end_of_one_role_is_not_that_of_another_whose_name_begins_so(agent: Spoken, tmp_path: Path) -> None:
    agent.hear("hello")
    agent.prepare(tmp_path / "run")
    agent.start("trainer-10", ["sleep", "1000"])
    other = agent.hear("started")["pid"]
    agent.start("trainer-1", ["true"])
    assert agent.hear("exit") == {"say": "exit", "role": "trainer-1", "code": 0}
    assert start_time(other) is not None
    agent.say(do="end", grace_s=60, roles=["trainer-10"])
    assert agent.hear("exit") == {"say": "exit", "role": "trainer-10", "code": -signal.SIGTERM}


def test_what_goes_wrong_on_a_host_is_told(agent: Spoken, tmp_path: Path) -> None:
    agent.hear("hello")
    (tmp_path / "file").write_text("")
    trouble = agent.prepare(tmp_path / "file" / "run")
    assert "Not a directory" in trouble["why"]
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "events.jsonl").write_text("")
    assert "holds a run already" in agent.prepare(tmp_path / "taken")["what"]
    assert "ended with code 3" in agent.prepare(tmp_path / "run", setup="echo oh no; exit 3")["what"]
    assert agent.prepare(tmp_path / "run", setup="touch made")["say"] == "ready"
    assert (tmp_path / "made").exists()
    agent.start("trainer-0", ["/no/such/program"])
    ended = agent.hear("exit")
    assert ended["code"] == 127
    assert "No such file" in ended["why"]


def test_ports_are_held_until_their_role_starts_and_come_from_the_range(agent: Spoken, tmp_path: Path) -> None:
    agent.hear("hello")
    agent.prepare(tmp_path / "run")
    listen = {"do": "listen", "names": ["server-0", "master"], "peers": [], "iface": None}
    agent.say(**listen, ports=None)
    places = agent.hear("listening")["places"]
    assert places["server-0"].startswith("ipc://")
    assert places["master"].startswith("127.0.0.1:")
    agent.say(**listen, ports=[23000, 23009])
    places = agent.hear("listening")["places"]
    ports = {int(place.rpartition(":")[2]) for place in places.values()}
    assert len(ports) == 2
    assert ports <= set(range(23000, 23010))
    agent.say(**{**listen, "names": ["a", "b", "c"]}, ports=[23020, 23021])
    assert "3 free ports are needed" in agent.hear("trouble")["what"]
    agent.say(**{**listen, "iface": "no-such0"}, ports=None)
    assert "no-such0" in agent.hear("trouble")["what"]


def test_marks_are_exact() -> None:
    process = subprocess.Popen(["sleep", "30"], env={"PHALANX_AGENT": "abc/trainer-1"})
    try:
        assert marked("abc/") == [process.pid]
        assert marked("abc/trainer-1") == [process.pid]
        assert not marked("bc/")
    finally:
        process.kill()
        process.wait()
