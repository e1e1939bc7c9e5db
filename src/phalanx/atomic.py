"""Atomic writing: readers see the old file or the new one, never a part, also after a crash or a power cut."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

PART = ".part"  # ends the names of unfinished files; those that a killed process leaves can be deleted
_LONGEST_STEM = 40  # characters of the final name in the temporary one, for people who find it


class AtomicFile:
    """A file under a temporary name beside its final one, until `commit` or `discard` ends it."""

    def __init__(self, path: Path, *, mode: int = 0o666) -> None:
        self.path = path
        unique = f"{os.getpid()}-{os.urandom(4).hex()}"
        self._temporary = path.with_name(f".{path.name[:_LONGEST_STEM]}.{unique}{PART}")
        # It has its mode from the start: a secret is never readable by others.
        descriptor = os.open(self._temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        self.file: BinaryIO = os.fdopen(descriptor, "wb")

    def commit(self, *, overwrite: bool = True) -> None:
        """Give the file its name, on the disk when this returns. FileExistsError where it must not overwrite one."""
        self.file.flush()
        os.fsync(self.file.fileno())
        self.file.close()
        if overwrite:
            self._temporary.replace(self.path)
        else:
            os.link(self._temporary, self.path)  # unlike a rename, it fails where the name is taken
            self._temporary.unlink()
        sync_names(self.path.parent)

    def discard(self) -> None:
        """Delete the temporary file. Bytes that do not fit on the disk are not needed any more: no error."""
        with contextlib.suppress(OSError):
            self.file.close()
        with contextlib.suppress(OSError):
            self._temporary.unlink()


@contextlib.contextmanager
def write_atomically(path: Path, *, mode: int = 0o666, overwrite: bool = True) -> Iterator[BinaryIO]:
    """A binary file to write: synced and renamed to `path` at the end of the block, deleted if the block fails.

    Raises OSError (a full disk, a folder without permission), for callers to explain. `mode` is reduced by the umask.
    """
    writing = AtomicFile(path, mode=mode)
    try:
        yield writing.file
        writing.commit(overwrite=overwrite)
    except BaseException:
        writing.discard()
        raise


def write_text_atomically(path: Path, text: str) -> None:
    """Write a text file in UTF-8 as `write_atomically` does."""
    with write_atomically(path) as file:
        file.write(text.encode())


def make_folder(path: Path, *, exist_ok: bool = True) -> None:
    """Make a folder and those above it. Their names are on the disk when this returns: what is in them can be found."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    path.mkdir(parents=True, exist_ok=exist_ok)
    for folder in missing:
        sync_names(folder.parent)


def sync_names(folder: Path) -> None:
    """Flush the names in a folder to the disk. Some file systems cannot; the files are complete anyway."""
    with contextlib.suppress(OSError):
        sync(folder)


def sync(path: Path) -> None:
    """Flush a file, or the names in a folder, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
