"""A run has one writer."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from phalanx.errors import UserError
from phalanx.runs.lock import hold_run, is_held

HOLDER = """
import sys, time
from pathlib import Path
from phalanx.runs.lock import hold_run
with hold_run(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_second_writer_is_told_who_the_first_is_and_a_dead_one_holds_nothing(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", HOLDER, str(tmp_path)], stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        with pytest.raises(UserError) as refused, hold_run(tmp_path):
            raise AssertionError("two writers")
        assert f"{tmp_path} is being trained already" in str(refused.value)
        assert f"process {holder.pid} on" in refused.value.why
        holder.send_signal(signal.SIGKILL)
        with hold_run(tmp_path):  # it waits for the kernel
            assert f"process {os.getpid()} on" in (tmp_path / ".lock").read_text()
    assert not (tmp_path / ".lock").exists()


@pytest.mark.parametrize("kind", ["a link", "a pipe"])
def test_a_lock_in_a_strangers_folder_leads_nowhere(kind: str, tmp_path: Path) -> None:
    """A link was followed, and what it led to was emptied; nobody waits for the other end of a pipe."""
    precious, run = tmp_path / "precious", tmp_path / "run"
    precious.write_text("mine")
    run.mkdir()
    if kind == "a link":
        (run / ".lock").symlink_to(precious)
    else:
        os.mkfifo(run / ".lock")
    assert not is_held(run)
    with pytest.raises(UserError, match="is not a file of a run"), hold_run(run):
        raise AssertionError("it was opened")
    assert precious.read_text() == "mine"
