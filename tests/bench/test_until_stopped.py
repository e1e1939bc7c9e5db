"""A benchmark that is stopped tells what it has."""

import subprocess
import sys

import pytest

from phalanx.bench.until_stopped import until_stopped

PROGRAM = """
import os, signal, time
from phalanx.bench.until_stopped import until_stopped
from phalanx.signals import interrupt_at_sigterm
interrupt_at_sigterm()
with until_stopped(lambda: True) as stopped:
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(300)
print(*stopped.notes, flush=True)
stopped.end()
"""


def test_sigterm_ends_the_measurements_and_then_the_process() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=120)
    assert done.stdout == "stopped by you before all was measured\n"
    assert "KeyboardInterrupt" in done.stderr
    assert done.returncode != 0


def test_with_nothing_to_tell_it_ends_at_once() -> None:
    with pytest.raises(KeyboardInterrupt), until_stopped(lambda: []):
        raise KeyboardInterrupt


def test_nothing_happens_to_one_that_is_not_stopped() -> None:
    with until_stopped(lambda: True) as stopped:
        pass
    assert stopped.notes == []
    stopped.end()
