"""The lifeline: a process ends with its launcher, even after kill -9, and so do its child processes.

python -m phalanx.roles.lifeline MARK PID FOLDER      the sweeper: ends the children of such a process, and removes
                                                      the job's folder on this host, which holds its key
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import time

from phalanx.machine.processes import MARK, signal_marked
from phalanx.net.listeners import JOB_FOLDER

_GRACE_S = 4.0
_SWEEP_S = 60.0  # a process that survives SIGKILL waits for a disk or a driver


def hold_lifeline() -> None:
    """Watch standard input, which the launcher holds open until it ends."""
    if os.environ.get("PHALANX_LIFELINE") != "stdin":
        return
    descriptor = os.dup(0)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)  # nothing else may read from it

    def watch() -> None:
        while os.read(descriptor, 1024):
            pass
        with contextlib.suppress(OSError, ValueError):  # the launcher was the reader
            sys.stderr.write("the launcher is gone; ending\n")
        if os.environ.get(MARK):
            _leave_sweeper(os.environ[MARK])
        _signal_all(signal.SIGTERM)
        time.sleep(_GRACE_S)
        _signal_all(signal.SIGKILL)

    threading.Thread(target=watch, name="phalanx-lifeline", daemon=True).start()


def _signal_all(number: int) -> None:
    """Signal this process and its children, also those outside of its group."""
    mark = os.environ.get(MARK)
    if mark:
        signal_marked(mark, number)
    os.killpg(os.getpgrp(), number)


def _leave_sweeper(mark: str) -> None:
    """Start the sweeper, which outlives this process: children may start while this process ends."""
    with contextlib.suppress(OSError):  # the process limit is reached: the children cannot start others either
        subprocess.Popen(
            [sys.executable, "-m", "phalanx.roles.lifeline", mark, str(os.getpid()), os.environ.get(JOB_FOLDER, "")],
            env={name: value for name, value in os.environ.items() if not name.startswith("PHALANX_")},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )


def sweep(mark: str, parent: int, folder: str) -> None:
    """After the parent's end, or its grace period, kill all processes with its mark, and remove the job's folder."""
    begun = time.monotonic()
    while os.getppid() == parent and time.monotonic() - begun < _GRACE_S:
        time.sleep(0.02)
    clean = 0
    while clean < 2 and time.monotonic() - begun < _SWEEP_S:  # twice: one scan misses processes that start during it
        clean = 0 if signal_marked(mark) else clean + 1
        time.sleep(0.02)
    if folder:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sweep(sys.argv[1], int(sys.argv[2]), sys.argv[3])
