"""What every process of ours does first."""

import resource
import socket
import subprocess
import sys

import pytest

_LIMIT, _STRANGERS = 256, 400
# A server under the limit that most logins have, made small.
_SERVER = f"""
import resource, sys, zmq
resource.setrlimit(resource.RLIMIT_NOFILE, ({_LIMIT}, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
from phalanx.net.server_channel import ServerChannel
from phalanx.roles.process import run_process

def main():
    server = ServerChannel(zmq.Context(), "tcp://127.0.0.1:0", "k" * 32, "a server", harm="read")
    print(server.address, flush=True)
    sys.stdin.readline()
    open("/dev/null").close()
    server.close(0)
    return 0

run_process(main)
"""


def test_silent_connections_do_not_keep_a_process_from_opening_files() -> None:
    """They hold a descriptor each until the handshake has failed, and need no key for that."""
    if resource.getrlimit(resource.RLIMIT_NOFILE)[1] < 4 * _STRANGERS:
        pytest.skip("this process may not have that many files open itself")
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    server = subprocess.Popen([sys.executable, "-c", _SERVER], text=True, **pipes)  # type: ignore[call-overload]
    assert server.stdout is not None
    port = int(server.stdout.readline().rsplit(":", 1)[1])
    strangers = [socket.create_connection(("127.0.0.1", port), timeout=30) for _ in range(_STRANGERS)]
    for stranger in strangers:
        stranger.settimeout(30)
        assert stranger.recv(10) == b"\xff" + bytes(7) + b"\x01\x7f", "ZeroMQ has accepted it, and waits"
    _, said = server.communicate("\n", timeout=30)
    assert server.returncode == 0, said
    for stranger in strangers:
        stranger.close()
