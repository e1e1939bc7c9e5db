"""Runs on other hosts: over real sshd, and from hosts that send what no honest one does."""

import json
import os
import shlex
import shutil
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from phalanx.board import received
from phalanx.board.mirror import Mirror
from phalanx.errors import UserError
from tests.board.made_runs import BEGAN, add_evaluation, make_run
from tests.board.served import Served
from tests.board.started import refused, started
from tests.lab.hosts import Lab, hosts_up
from tests.waiting import until

OUTSIDE = b"only-for-the-owner"


def ssh_from(lab: Lab, host: str) -> str:
    """For --ssh: hosts of the lab are reached from each other alone, so ssh runs on one of them."""
    return shlex.join(lab.command(host, ["ssh", "-F", str(lab.ssh_config)]))


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with hosts_up(2) as up:
        yield up


@pytest.fixture(scope="module")
def runs(lab: Lab) -> Path:
    """The folder of runs that h2 alone has, as this machine sees it."""
    there = lab.own_of("h2") / "runs"
    make_run(there / "-first", steps=20, finished=False)
    add_evaluation(make_run(there / "group" / "second"))
    (there.parent / "secret.txt").write_bytes(OUTSIDE)
    (there / "group" / "second" / "logs").mkdir()
    (there / "group" / "second" / "logs" / "trainer-0.log").symlink_to(lab.own / "secret.txt")
    (there / "group" / "second" / "summary.json").symlink_to("/etc/passwd")
    (there / "group" / "second" / "code").mkdir()
    (there / "group" / "second" / "code" / "mine.py").write_bytes(OUTSIDE)
    os.mkfifo(there / "group" / "second" / "plan.json")
    (there / "linked").symlink_to(there / "group")
    weights = there / "group" / "second" / "checkpoints" / "step-20"
    weights.mkdir(parents=True)
    (weights / "model.safetensors").write_bytes(b"x" * 1000)
    (weights / "manifest.json").write_text(json.dumps({"model.safetensors": {"bytes": 1000, "sha256": ""}}))
    return there


@pytest.fixture(scope="module")
def copies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("copies")


@pytest.fixture(scope="module")
def board(lab: Lab, runs: Path, copies: Path) -> Iterator[Served]:
    with started(f"h2:{lab.own}/runs/", "--ssh", ssh_from(lab, "h1"), env={"TMPDIR": str(copies)}) as found:
        yield found
    assert list(copies.glob("phalanx-board-*")) == []


@pytest.mark.lab
def test_runs_of_another_host(board: Served, lab: Lab) -> None:
    assert f"2 runs in h2:{lab.own}/runs" in board.said
    rows = board.rows()
    assert list(rows) == ["-first", "group/second"]
    assert rows["group/second"]["state"] == "finished"
    assert rows["group/second"]["path"] == f"h2:{lab.own}/runs/group/second"
    base = f"/api/run/{rows['group/second']['key']}"
    one = board.ask(base).json()
    assert one["evaluations"] == ["eval"]
    assert one["checkpoints"][0]["bytes"] == 1000  # as its manifest says: weights stay there
    assert one["logs"] == ["log.txt"]
    assert one["summary"] is None
    assert board.ask(f"{base}/file/eval/mistakes/0.png").status == 200
    assert board.ask(f"{base}/file/checkpoints/step-20/model.safetensors").status == 404
    for path, method in ((f"{base}/samples", "GET"), (f"{base}/notes", "PUT")):
        assert board.ask(path, method, body=b'{"tags": [], "note": ""}').status == 409


@pytest.mark.lab
def test_only_wanted_files_are_here(board: Served, copies: Path) -> None:
    """No link, no code, no weights: whatever the host has."""
    assert board.rows()
    files = [path for path in copies.rglob("*") if not path.is_dir()]
    assert all(stat.S_ISREG(path.lstat().st_mode) for path in files)
    names = {path.name for path in files}
    assert {"events.jsonl", "config.yaml", "0.png", "manifest.json"} <= names
    assert not {"mine.py", "model.safetensors", "summary.json", "trainer-0.log", "plan.json"} & names
    assert not any(OUTSIDE in path.read_bytes() for path in files)


@pytest.mark.lab
def test_it_follows(board: Served, runs: Path) -> None:
    """Steps that are added, a file that is written anew, a run that begins, one that is removed."""

    def step() -> int:
        return int(board.rows()["-first"]["step"])

    assert step() == 20
    with (runs / "-first" / "events.jsonl").open("a") as events:
        events.write(json.dumps({"t": BEGAN + 30, "kind": "stop", "step": 33, "reason": "Ctrl-C"}) + "\n")
    until(lambda: step() == 33)
    (runs / "-first" / "notes.json").write_text('{"tags": ["old"], "note": ""}')
    until(lambda: board.rows()["-first"]["tags"] == ["old"])
    (runs / "-first" / "notes.json").write_text('{"tags": ["newer"], "note": ""}')
    until(lambda: board.rows()["-first"]["tags"] == ["newer"])
    make_run(runs / "third")
    until(lambda: "third" in board.rows())
    shutil.rmtree(runs / "third")
    until(lambda: "third" not in board.rows())


@pytest.mark.lab
def test_a_host_that_goes_away_and_comes_back(board: Served, lab: Lab, runs: Path) -> None:
    lab.cut("h2")
    try:
        until(lambda: board.ask("/api/runs").json()["problems"])
        found = board.ask("/api/runs").json()
        assert "cannot be read" in found["problems"][0]
        assert "may be old" in found["problems"][0]
        assert [row["name"] for row in found["runs"]] == ["-first", "group/second"]
        make_run(runs / "meanwhile")
    finally:
        lab.mend("h2")
    until(lambda: "meanwhile" in board.rows())
    assert board.ask("/api/runs").json()["problems"] == []


@pytest.mark.lab
def test_what_cannot_be_had_is_refused_at_the_start(lab: Lab) -> None:
    ssh = ("--ssh", ssh_from(lab, "h1"))
    assert "there is no such folder" in refused(f"h2:{lab.own}/none", *ssh)
    assert "it is not a folder" in refused("h2:/etc/passwd", *ssh)
    assert "h9:runs cannot be read" in refused("h9:runs", *ssh)
    assert "ssh would take it for an option" in refused(*ssh, "--", "-oProxyCommand=true:runs")
    assert "no-such-ssh" in refused("h2:runs", "--ssh", "no-such-ssh")


def sent(*messages: object, content: bytes = b"") -> bytes:
    return b"".join(json.dumps(one).encode() + b"\n" for one in messages) + content


def part(name: str, content: bytes = b"x", at: int = 0, *, last: bool = True) -> bytes:
    return sent({"file": name, "at": at, "bytes": len(content), "last": last}, content=content)


def mirrored(here: Path, stream: bytes, then: str = "") -> Mirror:
    """A copy of a host that sends these bytes."""
    file = here.with_suffix(".sent")
    file.write_bytes(stream)
    here.mkdir()
    code = f"import sys; sys.stdout.buffer.write(open(sys.argv[1], 'rb').read()); sys.stdout.flush(); {then}"
    mirror = Mirror("node", "runs", here, lambda words: [sys.executable, "-c", code, str(file)])
    try:
        mirror.follow()
    finally:
        mirror.end()
    return mirror


HOSTILE = {
    "a path that leads out": part("../config.yaml"),
    "a path that leads out from within": part("a/../../config.yaml"),
    "an absolute path": part("/etc/config.yaml"),
    "a file that runs do not have": part(".ssh/authorized_keys"),
    "a file of code": part("one/code/mine.py"),
    "too deep": part("a/b/c/d/config.yaml"),
    "a name that is not text": sent({"file": ["config.yaml"], "at": 0, "bytes": 1, "last": True}),
    "half of a character": part("\ud800/config.yaml"),
    "a NUL": part("a\0/config.yaml"),
    "a long name": part("ü" * 200 + "/config.yaml"),
    "a file that is a folder": part("config.yaml") + part("config.yaml/config.yaml"),
    "a negative place": part("config.yaml", at=-1),
    "a hole": part("config.yaml") + part("config.yaml", at=1 << 20),
    "a part of nothing": part("config.yaml", at=7),
    "another file's part": part("config.yaml", last=False) + part("job.json", at=1),
    "a huge part": sent({"file": "config.yaml", "at": 0, "bytes": 1 << 50, "last": True}),
    "true for a number": sent({"file": "config.yaml", "at": 0, "bytes": True, "last": True}),
    "removal of what is not a run's": sent({"gone": "../../etc/passwd"}),
    "an unknown message": sent({"run": "rm"}),
    "no object": sent([1]),
    "no JSON": b"SSH banner\n",
    "deep JSON": b"[" * 60_000 + b"\n",
    "a line without an end": b"x" * 1_000_000,
    "growth without an end": part("log.txt", b"x" * 900_000)
    + b"".join(part("log.txt", b"x" * 900_000, at=900_000 * n) for n in range(1, 6)),
    "files without an end": b"".join(part(f"{number}/config.yaml") for number in range(30)),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_what_a_hostile_host_sends_is_refused(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(received, "LARGEST", 4_000_000)
    monkeypatch.setattr(received, "_MOST_FILES", 20)
    with pytest.raises(UserError) as told:
        mirrored(tmp_path / "copy", HOSTILE[kind])
    assert "it sends what no run has" in told.value.why
    assert sorted(path.name for path in tmp_path.iterdir()) == ["copy", "copy.sent"]
    assert sum(path.stat().st_size for path in tmp_path.rglob("copy/**/*") if path.is_file()) <= 4_000_000


def test_words_of_a_host_cannot_control_the_terminal(tmp_path: Path) -> None:
    with pytest.raises(UserError) as told:
        mirrored(tmp_path / "copy", b"", then="sys.exit('\\x1b[2J\\x1b]0;owned\\x07no such host')")
    assert "no such host" in told.value.why
    assert "\x1b" not in str(told.value)
    with pytest.raises(UserError) as told:
        mirrored(tmp_path / "other", sent({"error": "\x1b[2J"}))
    assert "\x1b" not in str(told.value)


def test_a_host_that_turns_hostile_later_is_left_alone(tmp_path: Path) -> None:
    stream = part("one/config.yaml", b"name: a\n") + sent({"pass": 1}) + part("../x/config.yaml")
    mirror = mirrored(tmp_path / "copy", stream)
    until(lambda: "not copied any more" in mirror.problem)
    assert (tmp_path / "copy" / "one" / "config.yaml").read_text() == "name: a\n"


def test_silence_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("phalanx.board.mirror._SILENCE_S", 0.2)
    with pytest.raises(UserError, match="cannot be read") as told:
        mirrored(tmp_path / "copy", b"", then="__import__('time').sleep(3600)")
    assert "no answer" in told.value.why
