"""Somebody without the job's key at its ports: connects, stays silent, sends garbage, sends frames without an end.

    python -m benchmarks.chaos.stranger HOST:PORT... [--seconds 4]

Bounded: `seconds` and 256 MB for each port. Prints a line when all are connected, and one at the end.
"""

import argparse
import os
import socket
import threading
import time

_MEGABYTE = 1 << 20
_MOST_BYTES = 256 * _MEGABYTE
# ZMTP 3.0: signature, version, mechanism NULL, not as a server; then READY as a DEALER. Frames follow.
_GREETING = b"\xff\0\0\0\0\0\0\0\x01\x7f\x03\0" + b"NULL".ljust(20, b"\0") + b"\0" + bytes(31)
_READY = b"\x05READY\x0bSocket-Type\0\0\0\x06DEALER\x08Identity\0\0\0\0"
_FRAME = b"\x03" + (_MEGABYTE).to_bytes(8, "big") + bytes(_MEGABYTE)  # long, and more follow


def silent(place: tuple[str, int], end: float) -> None:
    with socket.create_connection(place, timeout=2):
        time.sleep(max(0.0, end - time.monotonic()))


def garbage(place: tuple[str, int], end: float) -> None:
    _pour(place, b"", os.urandom(_MEGABYTE), end)


def web_browser(place: tuple[str, int], end: float) -> None:
    _pour(place, b"GET / HTTP/1.1\r\nHost: x\r\n", b"X-Header: " + b"a" * 1000 + b"\r\n", end)


def endless_frames(place: tuple[str, int], end: float) -> None:
    _pour(place, _GREETING + b"\x04" + bytes([len(_READY)]) + _READY, _FRAME, end)


def _pour(place: tuple[str, int], first: bytes, again: bytes, end: float) -> None:
    """Send, connect anew where the other side hangs up, and stop at the bound."""
    sent = 0
    while time.monotonic() < end and sent < _MOST_BYTES:
        try:
            with socket.create_connection(place, timeout=2) as connection:
                connection.settimeout(0.5)
                connection.sendall(first)
                while time.monotonic() < end and sent < _MOST_BYTES:
                    sent += connection.send(again)
        except OSError:
            time.sleep(0.05)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("place", nargs="+")
    parser.add_argument("--seconds", type=float, default=4.0)
    asked = parser.parse_args()
    places = [(host, int(port)) for host, _, port in (place.rpartition(":") for place in asked.place)]
    end = time.monotonic() + asked.seconds
    visits = [
        threading.Thread(target=visit, args=(place, end), daemon=True)
        for place in places
        for visit in (silent, garbage, web_browser, endless_frames)
    ]
    for visit in visits:
        visit.start()
    print(f"at {len(places)} ports", flush=True)
    for visit in visits:
        visit.join(asked.seconds + 5)
    print("done", flush=True)


if __name__ == "__main__":
    main()
