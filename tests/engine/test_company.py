"""Idle compute threads spin only while a process has its cores to itself."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from phalanx.config.schema import MachineConfig
from phalanx.cores import cores
from phalanx.engine import company
from phalanx.engine.company import Idlers, look_out, waited
from phalanx.engine.settings import choose
from phalanx.openmp import (
    CHOSEN,
    VARIABLES,
    let_idle_threads_sleep,
    let_idle_threads_spin_while_alone,
    spin_while_alone,
    waiting,
)

linux = pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="this kernel does not count waiting")


def eventually(what: Callable[[], bool]) -> bool:
    end = time.monotonic() + 60
    while not what() and time.monotonic() < end:
        time.sleep(0.05)
    return what()


def threads_here() -> int:
    return len(list(Path("/proc/self/task").iterdir()))


@linux
def test_idlers_are_a_team_of_threads_that_ends() -> None:
    torch.zeros(1 << 20).add_(1)  # the first team
    before, idlers = threads_here(), Idlers()
    idlers.come()
    idlers.come()
    assert eventually(lambda: threads_here() == before + torch.get_num_threads())
    idlers.leave()
    idlers.leave()
    assert eventually(lambda: threads_here() == before)


WATCHED = """
import subprocess, sys, time
from phalanx.openmp import let_idle_threads_sleep, let_idle_threads_spin_while_alone
let_idle_threads_sleep()
let_idle_threads_spin_while_alone("auto")
from phalanx.config.schema import MachineConfig
from phalanx.cores import cores
from phalanx.engine import company
from phalanx.engine.settings import choose
import torch
company.REMEMBERED_S = 0.5
choose(MachineConfig()).apply()
(watch,) = company._watch
matrix = torch.ones(300, 300)

def work_until(here):
    end = time.monotonic() + 60
    while watch.idlers.here != here and time.monotonic() < end:
        matrix @ matrix
    print(watch.idlers.here)

others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(3 * cores())]
work_until(True)
for other in others:
    other.kill()
end = time.monotonic() + 60
while watch.idlers.here and time.monotonic() < end:
    time.sleep(0.05)  # others of this machine may want the cores meanwhile: as long as we want none, nobody waits
print(watch.idlers.here)
"""


@linux
@pytest.mark.skipif(cores() < 2, reason="one core has no idle threads")
def test_others_are_noticed_and_so_is_that_they_are_gone() -> None:
    environment = {name: value for name, value in os.environ.items() if name not in (CHOSEN, *VARIABLES)}
    done = subprocess.run([sys.executable, "-c", WATCHED], capture_output=True, text=True, env=environment)
    assert done.stdout.split() == ["True", "False"], done.stderr


def test_what_a_thread_waited_is_read_from_the_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(company, "_TASKS", tmp_path)
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "schedstat").write_text("5000000000 1500000000 12\n")
    assert waited() == {"7": 1.5}
    (tmp_path / "8").mkdir()  # a kernel that does not count
    assert waited() is None
    monkeypatch.setattr(company, "_TASKS", tmp_path / "none")
    assert waited() is None


def test_only_a_process_that_takes_all_cores_spins(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (CHOSEN, *VARIABLES):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delitem(sys.modules, "torch")
    let_idle_threads_sleep()
    let_idle_threads_spin_while_alone(cores() + 1)
    assert not spin_while_alone()
    let_idle_threads_spin_while_alone("auto")
    assert spin_while_alone()
    assert "0.3 ms" in waiting()[0]
    let_idle_threads_sleep()  # in what this process starts
    assert not spin_while_alone()
    assert "GOMP_SPINCOUNT" not in os.environ
    assert waiting()[0] == "asleep"
    monkeypatch.setitem(sys.modules, "torch", torch)
    let_idle_threads_spin_while_alone("auto")  # too late: OpenMP has read it
    assert not spin_while_alone()


def test_what_the_user_has_set_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(CHOSEN, raising=False)
    monkeypatch.setenv("GOMP_SPINCOUNT", "7")
    monkeypatch.delitem(sys.modules, "torch")
    let_idle_threads_sleep()
    let_idle_threads_spin_while_alone("auto")
    assert (os.environ["GOMP_SPINCOUNT"], spin_while_alone()) == ("7", False)
    look_out()
    assert not company._watch
    monkeypatch.setitem(sys.modules, "torch", torch)
    assert "GOMP_SPINCOUNT=7" in str(choose(MachineConfig()).decisions["idle threads"])
