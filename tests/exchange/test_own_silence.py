"""A process notices that it was stopped itself, and does not take its own work for that. Real processes."""

import os
import signal
import time
from pathlib import Path

from phalanx.exchange.own_silence import OwnSilence
from tests.processes import start
from tests.waiting import until


def look(busy: bool, path: Path) -> None:
    """Looks until it was stopped, or has worked for long between two looks. Writes the loss that it finds."""
    silence = OwnSilence("trainer-1", 1.0, 0.2)
    begun = before = time.monotonic()
    path.write_text("ready\n")
    while time.monotonic() - before < 1.5 and time.monotonic() - begun < 120:
        before = time.monotonic()
        while busy and time.monotonic() - before < 1.6:
            pass
        time.sleep(0.1)
        silence.look()
    loss = silence.loss()
    path.write_text(loss.what if loss else "nothing")


def test_a_process_that_was_stopped(tmp_path: Path) -> None:
    path = tmp_path / "said"
    process = start(look, False, path)
    until(path.exists)
    os.kill(process.pid or 0, signal.SIGSTOP)
    time.sleep(2.0)
    os.kill(process.pid or 0, signal.SIGCONT)
    process.join(60)
    assert path.read_text() == "trainer-1 was taken for lost after 1 s of silence"


def test_a_process_that_worked(tmp_path: Path) -> None:
    path = tmp_path / "said"
    start(look, True, path).join(60)
    assert path.read_text() == "nothing"
