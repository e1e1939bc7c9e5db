"""Starts processes, warm where it can, for the stubs of its host (stub.py): python -m tests.warm.relay FOLDER."""

import json
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path


def place(folder: Path, host: str) -> Path:
    """The socket of a host's relay."""
    return folder / f"warm-{host}"


def serve(connection: socket.socket) -> None:
    """One process, from its start to its end."""
    message, streams, _, _ = socket.recv_fds(connection, 1 << 20, 3)
    request = json.loads(message)
    process = subprocess.Popen(
        [sys.executable, *request["words"]],
        env=request["environment"],
        cwd=request["cwd"],
        stdin=streams[0],
        stdout=streams[1],
        stderr=streams[2],
        start_new_session=True,
    )
    for stream in streams:
        os.close(stream)
    threading.Thread(target=forward_signals, args=(connection, process), daemon=True).start()
    connection.send(str(process.wait()).encode())


def forward_signals(connection: socket.socket, process: "subprocess.Popen[bytes]") -> None:
    """What the stub is told, the process is told; it does not outlive the stub."""
    while told := connection.recv(16):
        process.send_signal(int(told))
    process.kill()


def main(folder: Path) -> None:
    here = place(folder, socket.gethostname())
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(f"{here}.new")
    listener.listen(64)
    Path(f"{here}.new").rename(here)
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=serve, args=(connection,), daemon=True).start()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
