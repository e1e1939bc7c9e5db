"""The sockets that processes of this machine listen at, from Linux's /proc."""

import contextlib
import socket
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path

_TCP_LISTEN = "0A"
_UNIX_LISTEN = 0x10000  # __SO_ACCEPTCON in the flags of a Unix socket
_WORD = 4  # bytes: /proc prints an address as words of this machine's byte order


@dataclass(frozen=True)
class ListeningSocket:
    """One socket: a TCP address and port, or the path of a Unix socket."""

    pid: int
    host: str  # the address; empty for a Unix socket
    port: int = 0
    path: str = ""

    @property
    def endpoint(self) -> str:
        """HOST:PORT or the path."""
        return self.path or (f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}")

    @property
    def everywhere(self) -> bool:
        """Whether it listens at all addresses of this machine."""
        return self.host in ("0.0.0.0", "::")


def listening_sockets(pids: Iterable[int]) -> list[ListeningSocket]:
    """The sockets of these processes. One that several of them share is the first one's."""
    found: dict[str, ListeningSocket] = {}
    for pid in pids:
        inodes = _sockets_of(pid)
        for inode, place in [*_tcp(pid, "tcp"), *_tcp(pid, "tcp6"), *_unix(pid)]:
            if inode in inodes:
                found.setdefault(inode, place)
    return list(found.values())


def environment_of_process(pid: int) -> dict[str, str]:
    """The variables that a process was started with; empty if it has ended, or is another user's."""
    try:
        text = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="surrogateescape")
    except OSError:
        return {}
    return dict(item.split("=", 1) for item in text.split("\0") if "=" in item)


def parent_of(pid: int) -> int | None:
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int(Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[1])
    return None


def processes() -> list[int]:
    """All processes of this machine, or of this container."""
    with contextlib.suppress(OSError):
        return sorted(int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal())
    return []


def _sockets_of(pid: int) -> set[str]:
    """The inodes of a process's sockets."""
    found = set()
    with contextlib.suppress(OSError):
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                name = str(entry.readlink())
                if name.startswith("socket:["):
                    found.add(name[len("socket:[") : -1])
    return found


def _rows(pid: int, kind: str) -> Iterator[list[str]]:
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/net/{kind}").read_text(encoding="utf-8").splitlines()[1:]:
            yield line.split(None, 9) if kind != "unix" else line.split(None, 7)


def _tcp(pid: int, kind: str) -> Iterator[tuple[str, ListeningSocket]]:
    for row in _rows(pid, kind):
        if len(row) > 9 and row[3] == _TCP_LISTEN:
            address, _, port = row[1].partition(":")
            yield row[9].split()[0], ListeningSocket(pid, _address(address), int(port, 16))


def _unix(pid: int) -> Iterator[tuple[str, ListeningSocket]]:
    for row in _rows(pid, "unix"):
        if len(row) > 7 and int(row[3], 16) & _UNIX_LISTEN:
            yield row[6], ListeningSocket(pid, "", path=row[7])


def _address(text: str) -> str:
    raw = bytes.fromhex(text)
    words = [raw[start : start + _WORD] for start in range(0, len(raw), _WORD)]
    packed = b"".join(socket.htonl(int.from_bytes(word, "big")).to_bytes(_WORD, "big") for word in words)
    if len(packed) == _WORD:
        return str(IPv4Address(packed))
    address = IPv6Address(packed)
    return str(address.ipv4_mapped or address)
