"""Memory cgroups for tests, of version 1 or 2, made by hand."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.waiting import until

_ROOT = Path("/sys/fs/cgroup")


@contextmanager
def memory_group(limit_mb: int) -> Iterator[Path]:
    """A cgroup whose processes may have so much memory together. Skips where the system does not let us make one."""
    folder, limit = _writable()
    try:
        (folder / limit).write_text(str(limit_mb << 20))
        yield folder
    finally:
        until(lambda: not (folder / "cgroup.procs").read_text())
        folder.rmdir()


def _writable() -> tuple[Path, str]:
    """A new folder below the memory controller's, and the file of its limit."""
    reason = f"no memory controller at {_ROOT}"
    for parent, limit in ((_ROOT / "memory", "memory.limit_in_bytes"), (_ROOT, "memory.max")):
        folder = parent / f"phalanx-test-{os.getpid()}-{secrets.token_hex(4)}"
        if not (parent / "cgroup.procs").exists():
            continue
        try:
            folder.mkdir()
        except OSError as error:
            reason = f"{parent}: {error.strerror}"
            continue
        if (folder / limit).exists():
            return folder, limit
        folder.rmdir()
        reason = f"{parent} does not hand its memory controller down"
    pytest.skip(f"memory cgroups cannot be made here: {reason}")
