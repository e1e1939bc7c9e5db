"""Whether large messages are encrypted. Authenticated they are in any case."""

import functools
import platform
import socket
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from phalanx.net.interfaces import is_loopback, is_own

Encrypt = Literal["auto", "on", "off"]


def encrypts(setting: Encrypt, address: str) -> bool:
    """Whether to encrypt what goes to an address. auto: beyond this host, where the CPU has instructions for AES."""
    if setting != "auto":
        return setting == "on"
    return has_aes() and not _is_here(urlsplit(address).hostname or "")


@functools.cache
def has_aes() -> bool:
    """Whether AES-GCM runs at the speed of memory; without these instructions it is some thirty times slower."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return platform.machine() in ("arm64", "x86_64")  # not Linux: every Mac of the last years has them
    return any("aes" in line.split() for line in text.splitlines() if line.lower().startswith(("flags", "features")))


def _is_here(host: str) -> bool:
    if not host or is_loopback(host):
        return True
    try:
        return all(is_own(str(found[4][0])) for found in socket.getaddrinfo(host, None))
    except OSError:
        return False
