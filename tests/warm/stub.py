"""Stands in for python on a lab host: has the host's relay start the process, and is to others what that one is.

python -I -S stub.py FOLDER -m phalanx …; what it is told, the process is told; it ends as the process ends, and the
process does not outlive it. Where there is no relay it becomes python.
"""

import json
import os
import signal
import socket
import sys
from pathlib import Path
from typing import NoReturn

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.warm.kernel import show_as
from tests.warm.relay import place

_FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)


def write_stub(folder: Path) -> Path:
    """A program that starts like python on every host which has `folder` and a relay there."""
    path = folder / "python"
    path.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -S "{Path(__file__).resolve()}" "{folder}" "$@"\n')
    path.chmod(0o755)
    return path


def main(folder: Path, words: list[str]) -> NoReturn:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        ignored = signal.getsignal(signal.SIGTERM) is signal.SIG_IGN  # as batch systems have it
        if ignored or "PMI_FD" in os.environ:  # MPICH's: an open file; a relay can hand on neither
            raise ConnectionRefusedError
        connection.connect(str(place(folder, socket.gethostname())))
    except OSError:
        os.execv(sys.executable, [sys.executable, *words])
    request = {"words": words, "environment": dict(os.environ), "cwd": str(Path.cwd())}
    signal.pthread_sigmask(signal.SIG_BLOCK, _FORWARDED)
    for number in _FORWARDED:
        signal.signal(number, lambda number, _: connection.send(str(number).encode()))
    socket.send_fds(connection, [json.dumps(request).encode()], [0, 1, 2])
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _FORWARDED)
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):  # who reads or writes them is to see the process's end
        os.dup2(nothing, stream)
    show_as(["stub"], {})  # tests that look for a process find the real one only
    code = int(connection.recv(16) or -signal.SIGKILL)
    if code >= 0:
        os._exit(code)
    if -code in _FORWARDED:
        signal.signal(-code, signal.SIG_DFL)
    while True:
        os.kill(os.getpid(), -code)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
