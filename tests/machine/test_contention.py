"""Idle compute threads spin only while a process has its cores to itself."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from phalanx.machine import contention as company
from phalanx.machine.contention import look_out, waited
from phalanx.machine.cores import cores, is_limited
from phalanx.machine.openmp import (
    CHOSEN,
    VARIABLES,
    environment_of_others,
    let_idle_threads_sleep,
    let_idle_threads_spin_while_alone,
    spin_while_alone,
    waiting,
)

linux = pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="this kernel does not count waiting")


def ended(program: str) -> str:
    """What a program says that has this process's environment, without what was chosen here."""
    environment = {name: value for name, value in os.environ.items() if name not in (CHOSEN, *VARIABLES)}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


IDLER = """
import time
from pathlib import Path
import torch
from phalanx.machine.contention import Idler

def threads():
    return len(list(Path("/proc/self/task").iterdir()))

def until(number):
    end = time.monotonic() + 60
    while threads() != number and time.monotonic() < end:
        time.sleep(0.02)
    print(threads() - before)

torch.set_num_threads(3)
torch.zeros(1 << 20).add_(1)  # the first team
before, idler = threads(), Idler()
for _ in range(2):
    idler.come()
    idler.come()
    until(before + 2)
    idler.leave()
    idler.leave()
    until(before)
"""


@linux
def test_an_idler_is_a_team_of_two_threads_that_ends() -> None:
    assert ended(IDLER).split() == ["2", "0", "2", "0"]


WATCHED = """
import subprocess, sys, time
from phalanx.machine.openmp import let_idle_threads_sleep, let_idle_threads_spin_while_alone
let_idle_threads_sleep()
let_idle_threads_spin_while_alone("auto")
from phalanx.config.schema import MachineConfig
from phalanx.machine.cores import cores
from phalanx.machine import contention as company
from phalanx.machine.settings import choose
import torch
company.REMEMBERED_S = 0.5
choose(MachineConfig()).apply()
(watch,) = company._watch
matrix = torch.ones(300, 300)
busy = "import time\\nend = time.monotonic() + 90\\nwhile time.monotonic() < end: pass"
others = [subprocess.Popen([sys.executable, "-c", busy]) for _ in range(3 * cores())]
end = time.monotonic() + 60
while not watch.idler.here and time.monotonic() < end:
    matrix @ matrix
print(watch.idler.here)
for other in others:
    other.kill()
end = time.monotonic() + 60
while watch.idler.here and time.monotonic() < end:
    time.sleep(1)  # who wants nothing waits for nothing, whatever else runs on this machine
print(watch.idler.here)
"""


@linux
@pytest.mark.skipif(
    cores() < 2 or is_limited(), reason="threads spin only where there are several cores, without limits"
)
def test_others_are_noticed_and_so_is_that_they_are_gone() -> None:
    assert ended(WATCHED).split() == ["True", "False"]


def test_what_a_thread_waited_is_read_from_the_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(company, "_TASKS", tmp_path)
    for name, text in {"7": "5000000000 1500000000 12\n", "8": "0 0 0\n", "9": ""}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "schedstat").write_text(text)
    (tmp_path / "10").mkdir()  # it has ended while we looked
    assert waited() == {"7": 1.5}
    monkeypatch.setattr(company, "_TASKS", tmp_path / "none")
    assert waited() == {}


@pytest.fixture
def untouched(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Two cores, an environment in which nobody has chosen, and no torch."""
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
    assert waiting()[0] == "asleep"
    let_idle_threads_spin_while_alone("auto")
    assert spin_while_alone()
    assert "for a moment" in waiting()[0]
    assert not {CHOSEN, *VARIABLES} & environment_of_others().keys()
    let_idle_threads_sleep()  # in what this process starts
    assert not spin_while_alone()
    assert "GOMP_SPINCOUNT" not in os.environ
    assert waiting()[0] == "asleep"


@pytest.mark.parametrize("why", ["one thread", "limited", "one core", "not linux", "torch is there"])
def test_others_do_not(why: str, untouched: pytest.MonkeyPatch) -> None:
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
    assert not spin_while_alone()
    assert "GOMP_SPINCOUNT" not in os.environ


@pytest.mark.parametrize("chosen_before", [False, True])
def test_what_the_user_has_set_stays(chosen_before: bool, untouched: pytest.MonkeyPatch) -> None:
    """Also a site's or a job's script, between a launcher of ours and this process."""
    if chosen_before:
        let_idle_threads_sleep()
    untouched.setenv("GOMP_SPINCOUNT", "7")
    let_idle_threads_sleep()
    let_idle_threads_spin_while_alone("auto")
    assert (os.environ["GOMP_SPINCOUNT"], spin_while_alone()) == ("7", False)
    assert environment_of_others()["GOMP_SPINCOUNT"] == "7"
    look_out()
    assert not company._watch
    assert "GOMP_SPINCOUNT=7" in waiting()[0]
