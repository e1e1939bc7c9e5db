"""Memory that processes of one machine share. It has no name, so not even kill -9 leaves anything behind."""

import mmap
import os
import secrets
import select
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

TOKEN_BYTES = 64  # at the beginning of an area: proof that both sides look at the same memory


@dataclass(frozen=True)
class SharedMemory:
    """Bytes that another process may map, and the address under which it finds them; None where it cannot."""

    bytes: Tensor
    address: dict[str, Any] | None

    def close(self) -> None:
        """Let no process attach from now on. The memory itself stays for as long as a process uses it."""
        if self.address is not None:
            os.close(self.address["descriptor"])


def raw(tensor: Tensor) -> memoryview:
    """A tensor's bytes, without a copy."""
    return memoryview(tensor.numpy()).cast("B")  # type: ignore[arg-type]


def create(size: int) -> SharedMemory:
    """A shared area of `size` bytes, or private memory where the system has no anonymous files (not Linux)."""
    if not hasattr(os, "memfd_create"):
        return SharedMemory(torch.zeros(size, dtype=torch.uint8), None)
    descriptor = os.memfd_create("phalanx", os.MFD_CLOEXEC)
    os.ftruncate(descriptor, size)
    area = torch.frombuffer(mmap.mmap(descriptor, size), dtype=torch.uint8)
    token = secrets.token_bytes(TOKEN_BYTES)
    area[:TOKEN_BYTES] = torch.frombuffer(bytearray(token), dtype=torch.uint8)
    return SharedMemory(area, {"pid": os.getpid(), "descriptor": descriptor, "size": size, "token": token.hex()})


def attach(address: dict[str, Any] | None, size: int) -> Tensor | None:
    """The memory at another process's address; None where that process is on another machine."""
    if address is None:
        return None
    try:
        descriptor = os.open(f"/proc/{int(address['pid'])}/fd/{int(address['descriptor'])}", os.O_RDWR)
    except (OSError, KeyError, TypeError, ValueError, OverflowError):
        return None
    try:
        if os.fstat(descriptor).st_size != size:
            return None
        area = torch.frombuffer(mmap.mmap(descriptor, size), dtype=torch.uint8)
    except (OSError, ValueError, OverflowError):
        return None
    finally:
        os.close(descriptor)
    return area if bytes(area[:TOKEN_BYTES].tolist()).hex() == address.get("token") else None


class ProcessWatch:
    """Notices at once when a process of this machine has ended."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.descriptor: int | None = None
        if hasattr(os, "pidfd_open"):
            try:
                self.descriptor = os.pidfd_open(pid)
            except OSError:
                self.descriptor = None

    def ended(self) -> bool:
        if self.descriptor is None:
            return False
        poller = select.poll()
        poller.register(self.descriptor, select.POLLIN)
        return bool(poller.poll(0))

    def close(self) -> None:
        if self.descriptor is not None:
            os.close(self.descriptor)
            self.descriptor = None
