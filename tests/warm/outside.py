"""Warm processes for programs that are not Python, such as mpirun: they start a stub, and a relay the process."""

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.waiting import until
from tests.warm.client import RELAY, ROOT
from tests.warm.relay import place
from tests.warm.stub import write_stub


@contextmanager
def phalanx_outside() -> Iterator[list[str]]:
    """The words that start `phalanx`."""
    with TemporaryDirectory(prefix="phalanx-warm-") as folder:
        relay = subprocess.Popen([sys.executable, "-m", RELAY, folder], cwd=ROOT)
        try:
            until(place(Path(folder), socket.gethostname()).exists)
            yield [str(write_stub(Path(folder))), "-m", "phalanx"]
        finally:
            relay.kill()
            relay.wait()
