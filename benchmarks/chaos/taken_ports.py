"""Listens at ports of a host, so that nobody else can: `python -m benchmarks.chaos.taken_ports 17000-17003`."""

import signal
import socket
import sys

if __name__ == "__main__":
    first, last = (int(word) for word in sys.argv[1].split("-"))
    held = []
    for port in range(first, last + 1):
        one = socket.socket()
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # an earlier job may have used it a moment ago
        one.bind(("0.0.0.0", port))
        one.listen()
        held.append(one)
    print(f"listening at {len(held)} ports", flush=True)
    signal.pause()
