"""The lifeline: a process that was launched ends when its launcher does, even by kill -9."""

import os
import signal
import sys
import threading
import time

_GRACE_S = 5.0


def hold_lifeline() -> None:
    """Watch standard input, which the launcher holds open. Its end means that the launcher is gone."""
    if os.environ.get("PHALANX_LIFELINE") != "stdin":
        return
    descriptor = os.dup(0)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)  # nobody else is to read from it

    def watch() -> None:
        while os.read(descriptor, 1024):
            pass
        sys.stderr.write("the launcher is gone; ending\n")
        os.killpg(os.getpgrp(), signal.SIGTERM)
        time.sleep(_GRACE_S)
        os.killpg(os.getpgrp(), signal.SIGKILL)

    threading.Thread(target=watch, name="phalanx-lifeline", daemon=True).start()
