"""Hold every packet of a netfilter queue for a while, then let it go, in order. Stands in for netem, which not every
kernel has.

    python -m tests.lab.delay MILLISECONDS [JITTER_MS] [QUEUE]

Runs on a host whose rule `iptables -A OUTPUT -o eth0 -j NFQUEUE --queue-num QUEUE --queue-bypass` sends packets here
(`network.delayed` does both). Speaks netlink with Python's standard library alone. Ends by a signal.
"""

import random
import select
import socket
import struct
import sys
import time
from collections import deque

_NETLINK_NETFILTER, _SO_RCVBUFFORCE, _SOL_NETLINK, _NO_ENOBUFS = 12, 33, 270, 5
_QUEUE_SUBSYSTEM = 3 << 8  # NFNL_SUBSYS_QUEUE, in the upper byte of a message's type
_PACKET, _VERDICT, _CONFIG, _VERDICT_BATCH = 0, 1, 2, 3
_ACCEPT = 1
_QUEUE_LENGTH = 200_000
_SEGMENTS = 4  # NFQA_CFG_F_GSO: segments that offloading merged come as they are


class Queue:
    """A netfilter queue: what arrives are numbers of packets, the packets themselves stay in the kernel."""

    def __init__(self, number: int) -> None:
        self._number = number
        self.socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_NETFILTER)
        self.socket.bind((0, 0))
        self.socket.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, 1 << 26)
        self.socket.setsockopt(_SOL_NETLINK, _NO_ENOBUFS, 1)
        self._send(_CONFIG, _attribute(1, struct.pack("!BBH", 1, 0, socket.AF_INET)))  # bind
        self._send(_CONFIG, _attribute(2, struct.pack("!IB", 0, 1)))  # copy no bytes of packets
        self._send(_CONFIG, _attribute(3, struct.pack("!I", _QUEUE_LENGTH)))
        flags = struct.pack("!I", _SEGMENTS)
        self._send(_CONFIG, _attribute(5, flags) + _attribute(4, flags))  # the mask, and what to set of it

    def arrived(self) -> list[int]:
        """The packets of one read, in order."""
        data, at, packets = self.socket.recv(1 << 16), 0, []
        while at + 16 <= len(data):
            length, kind = struct.unpack_from("=IH", data, at)
            if kind == _QUEUE_SUBSYSTEM | _PACKET:
                packets.append(_packet_id(data, at + 20, at + length))
            at += max((length + 3) & ~3, 16)
        return packets

    def accept_up_to(self, packet: int) -> None:
        self._send(_VERDICT_BATCH, _attribute(2, struct.pack("!II", _ACCEPT, packet)))

    def _send(self, kind: int, body: bytes) -> None:
        request = 1
        header = struct.pack("=IHHII", 20 + len(body), _QUEUE_SUBSYSTEM | kind, request, 0, 0)
        self.socket.send(header + struct.pack("!BBH", 0, 0, self._number) + body)


def _attribute(kind: int, value: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(value), kind) + value + b"\0" * (-len(value) % 4)


def _packet_id(data: bytes, at: int, end: int) -> int:
    while at < end:
        length, kind = struct.unpack_from("=HH", data, at)
        if kind & 0x3FFF == 1:  # NFQA_PACKET_HDR
            (packet,) = struct.unpack_from("!I", data, at + 4)
            return int(packet)
        at += (length + 3) & ~3
    raise ValueError("a packet without a number")


def hold(queue: Queue, delay_s: float, jitter_s: float) -> None:
    """For ever. A packet never overtakes another: then one verdict is for all up to it."""
    waiting: deque[tuple[float, int]] = deque()
    last = 0.0
    while True:
        wait_s = max(0.0, waiting[0][0] - time.monotonic()) if waiting else None
        if (wait_s is None or wait_s > 0) and select.select([queue.socket], [], [], wait_s)[0]:
            now = time.monotonic()
            for packet in queue.arrived():
                last = max(last, now + delay_s + random.random() * jitter_s)
                waiting.append((last, packet))
        now, newest = time.monotonic(), None
        while waiting and waiting[0][0] <= now:
            newest = waiting.popleft()[1]
        if newest is not None:
            queue.accept_up_to(newest)


if __name__ == "__main__":
    given = [float(word) for word in sys.argv[1:]]
    hold(Queue(int(given[2]) if len(given) > 2 else 1), given[0] / 1e3, given[1] / 1e3 if len(given) > 1 else 0.0)
