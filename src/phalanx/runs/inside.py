"""Reading files of a run folder, and nothing else: no `..`, no symbolic link, no device."""

import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

from phalanx.config.text import read_json

_MOST_BYTES = 64 << 20  # of a file that is read as a whole


def open_inside(folder: Path, name: str) -> BinaryIO:
    """A regular file at `name` below the folder. OSError where it is missing or leads out of it.

    Each part is opened relative to the one before, without following links: nobody can put a link there in between.
    """
    parts = parts_of(name)
    held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in parts[:-1]:
            below = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=held)
            os.close(held)
            held = below
        # Without O_NONBLOCK, a pipe of that name would make this wait for its writer.
        descriptor = os.open(parts[-1], os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=held)
    finally:
        os.close(held)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise FileNotFoundError(2, "not a regular file", name)
    return os.fdopen(descriptor, "rb")


def parts_of(name: str) -> Sequence[str]:
    """The parts of a relative path. FileNotFoundError where it could lead elsewhere."""
    parts = name.split("/")
    if any(part in ("", ".", "..") or "\0" in part for part in parts):
        raise FileNotFoundError(2, "not a path inside of a run", name)
    return parts


def read_inside(folder: Path, name: str, largest: int = _MOST_BYTES) -> bytes:
    """The content of a small file. OSError where it is missing or far too large."""
    with open_inside(folder, name) as file:
        content = file.read(largest + 1)
    if len(content) > largest:
        raise OSError(27, "too large to show", name)
    return content


def json_inside(folder: Path, name: str) -> dict[str, Any] | None:
    """The object in a JSON file; None where there is no such file. ValueError where it is damaged."""
    try:
        found = read_json(read_inside(folder, name))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ValueError(error.strerror or str(error)) from error
    if not isinstance(found, dict):
        raise ValueError("it holds no object")
    return found
