"""A process that is forked from a warm one is as one that is started afresh, except that torch is there already."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from phalanx.runs import checkpoint
from tests.conftest import LEAN
from tests.waiting import until
from tests.warm.client import at_start, started_with

PROBE = """
import json, os, random, signal, sys, threading
handlers = [str(signal.getsignal(number)) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGPIPE)]
print(json.dumps({
    "warm": "torch" in sys.modules, "random": random.random(), "pid": os.getpid(),
    "parent": os.getppid(), "leads": (os.getpgrp() == os.getpid(), os.getsid(0) == os.getpid()),
    "cwd": os.getcwd(), "argv": sys.argv, "orig_argv": sys.orig_argv, "path": sys.path, "executable": sys.executable,
    "environ": dict(os.environ), "shown": open("/proc/self/environ").read().split(chr(0)),
    "cmdline": open("/proc/self/cmdline").read(), "handlers": handlers, "stdin": sys.stdin.read(),
    "streams": [(s.encoding, s.errors, s.line_buffering, s.isatty()) for s in (sys.stdin, sys.stdout, sys.stderr)],
    "main": (sys.modules["__main__"].__name__, sys.modules["__main__"].__file__), "threads": threading.active_count(),
    "open": len(os.listdir("/proc/self/fd")) - int("torch" in sys.modules), "cores": sorted(os.sched_getaffinity(0)),
}))
print("to the other stream", file=sys.stderr)
sys.exit(int(sys.argv[1]))
"""
ABOUT_THE_PROCESS = ("warm", "random", "pid")


@pytest.fixture(autouse=True)
def as_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """An earlier test may have left a variable that libraries read at the start: then processes start afresh."""
    before = at_start(started_with())
    for name in at_start(os.environ).keys() - before.keys():
        monkeypatch.delenv(name)
    for name, value in before.items():
        monkeypatch.setenv(name, value)


def start(folder: Path, *words: str, cold: bool = False, **given: Any) -> "subprocess.Popen[str]":
    environment = {**os.environ, "OWN": "a b", "PHALANX_COLD": str(int(cold))}
    if not cold:
        del environment["PHALANX_COLD"]
    command = [sys.executable, *words]
    pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    return subprocess.Popen(command, cwd=folder, env=environment, text=True, **pipes, **given)


def probe(folder: Path, *, cold: bool, **given: Any) -> dict[str, Any]:
    (folder / "probe.py").write_text(PROBE)
    process = start(folder, "probe.py", "3", "é", cold=cold, **given)
    said, errors = process.communicate("told\n", timeout=120)
    assert (process.returncode, errors) == (3, "to the other stream\n")
    seen: dict[str, Any] = json.loads(said)
    assert seen["pid"] == process.pid
    seen["environ"].pop("PHALANX_COLD", None)
    seen["shown"] = sorted(line for line in seen["shown"] if not line.startswith("PHALANX_COLD"))
    return seen


@pytest.mark.parametrize("new_session", [False, True])
def test_it_looks_as_one_that_was_started_afresh(tmp_path: Path, new_session: bool) -> None:
    warm, cold = (probe(tmp_path, cold=cold, start_new_session=new_session) for cold in (False, True))
    assert (warm["warm"], cold["warm"]) == (True, False)
    assert {name: value for name, value in warm.items() if name not in ABOUT_THE_PROCESS} == {
        name: value for name, value in cold.items() if name not in ABOUT_THE_PROCESS
    }
    assert warm["parent"] == os.getpid()
    assert warm["random"] != probe(tmp_path, cold=False)["random"]


def test_it_starts_afresh_where_libraries_would_be_loaded_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MALLOC_ARENA_MAX", "3")
    assert not probe(tmp_path, cold=False)["warm"]


def test_what_libraries_set_in_a_test_s_process_is_no_reason_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("KMP_DUPLICATE_LIB_OK", "TORCHINDUCTOR_CACHE_DIR"):
        monkeypatch.setenv(name, "other")
    assert probe(tmp_path, cold=False)["warm"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGINT])
def test_a_signal_ends_it(tmp_path: Path, number: int) -> None:
    (tmp_path / "waiting.py").write_text("import time\nprint('here', flush=True)\ntime.sleep(600)\n")
    process = start(tmp_path, "waiting.py")
    assert process.stdout is not None
    assert process.stdout.readline() == "here\n"
    process.send_signal(number)
    process.communicate(timeout=60)
    assert process.returncode == -number


def test_what_it_starts_is_warm_and_its_own_child(tmp_path: Path) -> None:
    (tmp_path / "probe.py").write_text(PROBE)
    inner = "[sys.executable, 'probe.py', '0']"
    (tmp_path / "outer.py").write_text(
        f"import os, subprocess, sys\nprint(os.getpid())\nsys.stdout.flush()\nsubprocess.run({inner}, check=True)\n"
    )
    said, _ = start(tmp_path, "outer.py").communicate("", timeout=120)
    outer, inside = said.splitlines()
    assert json.loads(inside)["parent"] == int(outer)
    assert json.loads(inside)["warm"]


def test_it_leaves_no_server_behind(tmp_path: Path) -> None:
    marker = tmp_path / "waiting.py"
    marker.write_text("import time\nprint('here', flush=True)\ntime.sleep(600)\n")
    process = start(tmp_path, str(marker))
    assert process.stdout is not None
    process.stdout.readline()
    (server,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    process.kill()
    process.communicate(timeout=60)
    until(lambda: not Path(f"/proc/{server}").exists() or "Z" in state_of(int(server)))


def state_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "Z"


def test_it_trains_to_the_same_bits(tmp_path: Path) -> None:
    words = ["-m", "phalanx", "train", "digits", "model.name=wrn10_1", "train.length=4st", *LEAN]
    tensors = []
    for name in ("warm", "cold"):
        process = start(tmp_path, *words, "--workers", "2", "--out", name, cold=name == "cold")
        said, errors = process.communicate(timeout=300)
        assert process.returncode == 0, said + errors
        assert not errors
        tensors.append(checkpoint.load_newest(tmp_path / name / "checkpoints")[0].tensors)
    warm, cold = tensors
    assert warm.keys() == cold.keys()
    for group, saved in cold.items():
        assert {key: value.tolist() for key, value in saved.items()} == {
            key: value.tolist() for key, value in warm[group].items()
        }
