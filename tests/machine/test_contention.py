"""Idle compute threads spin only while a process has its cores to itself."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from phalanx.machine import contention
from phalanx.machine.contention import core_waits, watch_contention
from phalanx.machine.cores import cores, is_limited
from phalanx.machine.openmp import (
    CHOSEN,
    VARIABLES,
    environment_of_others,
    idle_threads,
    let_idle_threads_sleep,
    let_idle_threads_spin_while_alone,
    spins_while_alone,
)

linux = pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="this kernel does not count waiting")


def ended(program: str) -> str:
    """Output of a program in this process's environment, without the choice made here."""
    environment = {name: value for name, value in os.environ.items() if name not in (CHOSEN, *VARIABLES)}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


EXTRA_THREAD = """
import time
from pathlib import Path
import torch
from phalanx.machine.contention import ExtraThread

def threads():
    return len(list(Path("/proc/self/task").iterdir()))

def until(number):
    end = time.monotonic() + 60
    while threads() != number and time.monotonic() < end:
        time.sleep(0.02)
    print(threads() - before)

torch.set_num_threads(3)
torch.zeros(1 << 20).add_(1)  # the first team
before, extra = threads(), ExtraThread()
for _ in range(2):
    extra.start()
    extra.start()
    until(before + 2)
    extra.stop()
    extra.stop()
    until(before)
"""


@linux
def test_the_extra_thread_is_a_team_of_two_that_ends() -> None:
    assert ended(EXTRA_THREAD).split() == ["2", "0", "2", "0"]


WATCHED = """
import subprocess, sys, time
from phalanx.machine.openmp import let_idle_threads_sleep, let_idle_threads_spin_while_alone
let_idle_threads_sleep()
let_idle_threads_spin_while_alone("auto")
from phalanx.config.schema import MachineConfig
from phalanx.machine.cores import cores
from phalanx.machine import contention
from phalanx.machine.settings import choose
import torch
contention.COOL_DOWN_S = 0.5
choose(MachineConfig()).apply()
(watch,) = contention._watch
matrix = torch.ones(300, 300)
busy = "import time\\nend = time.monotonic() + 90\\nwhile time.monotonic() < end: pass"
others = [subprocess.Popen([sys.executable, "-c", busy]) for _ in range(3 * cores())]
end = time.monotonic() + 60
while not watch.extra.running and time.monotonic() < end:
    matrix @ matrix
print(watch.extra.running)
for other in others:
    other.kill()
end = time.monotonic() + 60
while watch.extra.running and time.monotonic() < end:
    time.sleep(1)  # threads that do not run do not wait for cores, whatever else runs on this machine
print(watch.extra.running)
"""


@linux
@pytest.mark.skipif(
    cores() < 2 or is_limited(), reason="threads spin only where there are several cores, without limits"
)
def test_contention_is_noticed_and_so_is_its_end() -> None:
    assert ended(WATCHED).split() == ["True", "False"]


def test_waiting_times_are_read_from_the_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contention, "_TASKS", tmp_path)
    for name, text in {"7": "5000000000 1500000000 12\n", "8": "0 0 0\n", "9": ""}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "schedstat").write_text(text)
    (tmp_path / "10").mkdir()  # a thread that has just ended
    assert core_waits() == {"7": 1.5}
    monkeypatch.setattr(contention, "_TASKS", tmp_path / "none")
    assert core_waits() == {}


@pytest.fixture
def untouched(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Two cores, an environment without a choice, and no torch."""
    for name in (CHOSEN, *VARIABLES):
        monkeypatch.setenv(name, "")  # so that it is put back
        monkeypatch.delenv(name)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr("phalanx.machine.openmp.cores", lambda: 2)
    monkeypatch.setattr("phalanx.machine.openmp.is_limited", bool)
    monkeypatch.delitem(sys.modules, "torch")
    return monkeypatch


def test_a_process_that_takes_all_cores_spins(untouched: pytest.MonkeyPatch) -> None:
    let_idle_threads_sleep()
    assert idle_threads()[0] == "sleep"
    let_idle_threads_spin_while_alone("auto")
    assert spins_while_alone()
    assert idle_threads()[0] == "spin, then sleep"
    assert not {CHOSEN, *VARIABLES} & environment_of_others().keys()
    let_idle_threads_sleep()  # in what this process starts
    assert not spins_while_alone()
    assert "GOMP_SPINCOUNT" not in os.environ
    assert idle_threads()[0] == "sleep"


@pytest.mark.parametrize("why", ["one thread", "limited", "one core", "not linux", "torch is there"])
def test_other_processes_do_not_spin(why: str, untouched: pytest.MonkeyPatch) -> None:
    if why == "limited":
        untouched.setattr("phalanx.machine.openmp.is_limited", lambda: True)
    elif why == "one core":
        untouched.setattr("phalanx.machine.openmp.cores", lambda: 1)
    elif why == "not linux":
        untouched.setattr(sys, "platform", "darwin")
    elif why == "torch is there":
        untouched.setitem(sys.modules, "torch", torch)
    let_idle_threads_sleep()
    let_idle_threads_spin_while_alone(1 if why == "one thread" else "auto")
    assert not spins_while_alone()
    assert "GOMP_SPINCOUNT" not in os.environ


@pytest.mark.parametrize("chosen_before", [False, True])
def test_what_the_user_has_set_stays(chosen_before: bool, untouched: pytest.MonkeyPatch) -> None:
    """Also a site's or a job's script, between a launcher of ours and this process."""
    if chosen_before:
        let_idle_threads_sleep()
    untouched.setenv("GOMP_SPINCOUNT", "7")
    let_idle_threads_sleep()
    let_idle_threads_spin_while_alone("auto")
    assert (os.environ["GOMP_SPINCOUNT"], spins_while_alone()) == ("7", False)
    assert environment_of_others()["GOMP_SPINCOUNT"] == "7"
    watch_contention()
    assert not contention._watch
    assert "GOMP_SPINCOUNT=7" in idle_threads()[0]
