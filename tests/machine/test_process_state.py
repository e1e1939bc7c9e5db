"""What keeps a process from running, as /proc tells."""

import os
import signal
import subprocess

from phalanx.machine.process_state import ProcessState, hindrance, read_state
from tests.waiting import until


def test_a_stopped_process_and_one_that_runs() -> None:
    process = subprocess.Popen(["sleep", "60"])
    try:
        assert hindrance(process.pid) == ""
        process.send_signal(signal.SIGSTOP)
        until(lambda: read_state(process.pid).is_stopped)
        assert hindrance(process.pid) == "is stopped (by SIGSTOP or Ctrl-Z; SIGCONT continues it)"
        process.send_signal(signal.SIGCONT)
        until(lambda: hindrance(process.pid) == "")
    finally:
        process.kill()
        process.wait()
    assert read_state(process.pid) == ProcessState()
    assert hindrance(process.pid) == ""
    assert read_state(os.getpid()).resident_mb > 1


def test_a_process_is_swapped_out_if_most_of_it_is_on_disk() -> None:
    assert ProcessState("S", resident_mb=100, swapped_mb=900).is_swapped_out
    assert not ProcessState("S", resident_mb=900, swapped_mb=100).is_swapped_out
    assert not ProcessState("S", resident_mb=1, swapped_mb=20).is_swapped_out  # a small one
