"""The lifeline: a process that was launched ends when its launcher does, even by kill -9."""

import contextlib
import os
import signal
import sys
import threading
import time

from phalanx.launch.processes import MARK, signal_marked

_GRACE_S = 4.0


def hold_lifeline() -> None:
    """Watch standard input, which the launcher holds open. Its end means that the launcher is gone."""
    if os.environ.get("PHALANX_LIFELINE") != "stdin":
        return
    descriptor = os.dup(0)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)  # nobody else is to read from it

    def watch() -> None:
        while os.read(descriptor, 1024):
            pass
        with contextlib.suppress(OSError, ValueError):  # the launcher read what is written here
            sys.stderr.write("the launcher is gone; ending\n")
        _signal_all(signal.SIGTERM)
        time.sleep(_GRACE_S)
        _signal_all(signal.SIGKILL)

    threading.Thread(target=watch, name="phalanx-lifeline", daemon=True).start()


def _signal_all(number: int) -> None:
    """Signal this process, its children, and those of its children that left its group."""
    mark = os.environ.get(MARK)
    if mark:
        signal_marked(mark, number)
    os.killpg(os.getpgrp(), number)
