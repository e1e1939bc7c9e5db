"""Programs that are measured in turns: their answers, their failures, and that nothing of them stays."""

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from phalanx.bench.contender import Contender, ContenderFailed, Turn, memory_of, peak_of
from phalanx.bench.peers import files_of
from phalanx.bench.turns import taken
from tests.waiting import until

COUNTING = """
import itertools, sys
from phalanx.bench.turns import serve
print("a remark of some library")
serve(itertools.repeat(8))
"""
CHILDREN = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "data = bytearray(80_000_000); import time; time.sleep(600)"])
print('{"ready": true, "child": %d}' % child.pid, flush=True)
time.sleep(600)
"""
FAILING = "import sys; sys.exit('no module named frobnicate')"
SILENT = "import time; time.sleep(600)"


def contender(program: str, **options: Any) -> Contender:
    return Contender("it", [sys.executable, "-c", program], **options)


def test_it_is_measured_as_often_as_asked() -> None:
    with contender(COUNTING) as it:
        it.wait_until_ready()
        for _ in range(2):
            it.take_turn(Turn(0.05))
    assert len(it.turns.rates) == 2
    assert min(it.turns.rates) > 8
    assert min(it.turns.cpu_s) >= 0
    assert it.turns.memory_bytes > 1_000_000


def test_its_last_words_are_told() -> None:
    with contender(FAILING) as it, pytest.raises(ContenderFailed, match="no module named frobnicate"):
        it.wait_until_ready()


def test_one_that_ends_between_turns_is_told() -> None:
    with contender("print('{}', flush=True); input(); raise SystemExit('enough')") as it:
        it.wait_until_ready()
        with pytest.raises(ContenderFailed, match="enough"):
            it.take_turn(Turn(0.1))


def test_one_that_does_not_answer_is_given_up() -> None:
    with contender(SILENT, start_timeout_s=0.3) as it, pytest.raises(ContenderFailed, match="did not answer"):
        it.wait_until_ready()


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="there is no /proc here")
def test_its_children_count_and_go_with_it() -> None:
    with contender(CHILDREN) as it:
        it.wait_until_ready()
        pid = it._process.pid
        until(lambda: memory_of(pid) >= 80_000_000)  # the child has its memory
        (child,) = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    until(lambda: not (Path(f"/proc/{child}").exists() and _is_running(child)), why=lambda: "its child is alive")


def _is_running(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_nothing_is_left_of_a_process_that_is_gone() -> None:
    assert memory_of(2**22 + 1) == 0
    assert memory_of(os.getpid()) > 0
    assert peak_of(2**22 + 1) == 0
    assert peak_of(os.getpid()) > 0


def test_images_are_counted_until_the_time_is_up() -> None:
    images, seconds = taken(iter([3] * 10**7), 0.02)
    assert images % 3 == 0
    assert seconds >= 0.02
    assert taken(iter([3] * 10), 60.0, most=4)[0] == 12


def test_files_and_labels_are_in_the_order_of_numbers(tmp_path: Path) -> None:
    for name in ("b/000001.jpg", "a/000002.jpg", "b/000000.jpg"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    files, labels = files_of({"root": str(tmp_path)})
    assert [Path(file).name for file in files] == ["000000.jpg", "000001.jpg", "000002.jpg"]
    assert labels == [1, 1, 0]
