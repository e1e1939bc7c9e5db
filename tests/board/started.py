"""`phalanx board` as a user starts it: a process of its own, asked over its socket."""

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from phalanx.board.guard import Guard
from phalanx.board.places import Places
from tests.board.served import Served

_ADDRESS = re.compile(r"http://127\.0\.0\.1:(\d+)/\?token=(\S+)")


@contextlib.contextmanager
def started(*words: str, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> Iterator[Served]:
    """The board of the command line. It ends by Ctrl-C, and says nothing then."""
    argv = [sys.executable, "-m", "phalanx", "board", *words]
    process = subprocess.Popen(
        argv,
        cwd=cwd,
        env={**os.environ, **(env or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    try:
        said = ""
        for line in process.stdout:
            said += line
            if "Ctrl-C" in line:
                break
        found = _ADDRESS.search(said)
        assert found is not None, said
        yield Served(Guard("127.0.0.1", int(found[1]), found[2]), Places([]), said, process.pid)
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(120)
        process.stdout.close()


def refused(*words: str) -> str:
    """What it says when it does not start."""
    argv = [sys.executable, "-m", "phalanx", "board", *words]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=300, stdin=subprocess.DEVNULL)
    assert done.returncode == 2, (done.stdout, done.stderr)
    assert "Traceback" not in done.stderr
    return done.stderr
