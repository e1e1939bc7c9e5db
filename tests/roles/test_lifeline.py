"""What a role leaves behind when its launcher dies, with real processes."""

import os
import secrets
import subprocess
import sys

import pytest

from phalanx.machine.processes import MARK, marked
from tests.waiting import until

_ROLE = """
import signal, subprocess, sys, time
from phalanx.roles.lifeline import hold_lifeline

def start_another(*_):
    subprocess.Popen(["sleep", "1000"], start_new_session=True)
    if "stubborn" not in sys.argv:
        sys.exit(143)

signal.signal(signal.SIGTERM, start_another)
hold_lifeline()
print("here", flush=True)
while True:
    time.sleep(1)
"""


@pytest.mark.parametrize("how", ["obedient", "stubborn"])
def test_what_is_started_while_ending_is_ended_too(how: str) -> None:
    """A child that leaves the group, started after those to be ended were counted."""
    mark = f"{secrets.token_hex(8)}/trainer-0"
    role = subprocess.Popen(
        [sys.executable, "-c", _ROLE, how],
        env={**os.environ, MARK: mark, "PHALANX_LIFELINE": "stdin"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    assert role.stdin is not None
    assert role.stdout is not None
    assert role.stdout.readline() == b"here\n"
    assert marked(mark) == [role.pid]
    role.stdin.close()
    assert role.wait(60) == (143 if how == "obedient" else -9)
    until(lambda: not marked(mark))
