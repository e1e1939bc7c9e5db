"""Runs on the other host of `phalanx board HOST:FOLDER`: sends the small files of runs, and later what they gain.

It comes there over ssh as text, needs Python 3.7 alone, and writes nothing. A message is a line of JSON, followed by as
many bytes as it says. `python3 - FOLDER SETTINGS`; SETTINGS is JSON of what `board/mirror.py` wants.
"""

from __future__ import annotations

import json
import os
import re
import stat
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_CHUNK = 1 << 20
_GROWING = (".jsonl", ".log", "log.txt")  # only ever appended to


def main(folder: str, settings: dict[str, Any]) -> int:
    """Send all files, then what changes, until nobody reads."""
    root = Path(folder).expanduser()
    if not root.is_dir():
        _send({"error": "it is not a folder" if root.exists() else "there is no such folder"})
        return 1
    sent: dict[str, tuple[int, int, int]] = {}
    while True:
        found = dict(_files(root, settings))
        for name in [name for name in sent if name not in found]:
            del sent[name]
            _send({"gone": name})
        for name, about in found.items():
            if sent.get(name) != about:
                sent[name] = _send_file(root, name, about, sent.get(name), settings["largest"])
        _send({"pass": len(found)})
        time.sleep(settings["every_s"])


def _files(root: Path, settings: dict[str, Any]) -> Iterator[tuple[str, tuple[int, int, int]]]:
    """Wanted files below the root, with inode, size and time of change. Links are passed over."""
    files, folders = re.compile(settings["files"], re.DOTALL), re.compile(settings["folders"], re.DOTALL)
    for run in _runs(root, "", settings["depth"], set(settings["marks"]), set(settings["not_runs"])):
        below = [""]
        while below:
            inner = below.pop()
            for entry in _entries(root / run / inner):
                name = inner + entry.name
                try:
                    about = entry.stat(follow_symlinks=False)
                except OSError:  # it went away
                    continue
                if stat.S_ISDIR(about.st_mode) and folders.fullmatch(name):
                    below.append(name + "/")
                elif stat.S_ISREG(about.st_mode) and files.fullmatch(name):
                    yield run + name, (about.st_ino, about.st_size, about.st_mtime_ns)


def _runs(root: Path, inner: str, depth: int, marks: set[str], not_runs: set[str]) -> Iterator[str]:
    """Folders of runs: "", or "NAME/", or "NAME/NAME/"."""
    entries = _entries(root / inner)
    if marks & {entry.name for entry in entries}:
        yield inner
    for entry in entries:
        is_hidden = entry.name.startswith(".") or entry.name in not_runs
        if depth and not is_hidden and entry.is_dir(follow_symlinks=False):
            yield from _runs(root, f"{inner}{entry.name}/", depth - 1, marks, not_runs)


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as listing:
            return sorted(listing, key=lambda entry: entry.name)
    except OSError:
        return []


def _send_file(
    root: Path, name: str, about: tuple[int, int, int], before: tuple[int, int, int] | None, largest: int
) -> tuple[int, int, int]:
    """What was added to the file, or all of it. What is known of it then; it may have changed again meanwhile."""
    inode, size, changed = about
    if size > largest:
        _send({"large": name, "bytes": size})
        return about
    grows = before is not None and before[0] == inode and before[1] <= size and name.endswith(_GROWING)
    at = before[1] if before is not None and grows else 0
    try:
        opened = os.open(root / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return -1, 0, 0  # tried again
    with os.fdopen(opened, "rb") as file:
        file.seek(at)
        while True:
            content = file.read(min(_CHUNK, size - at))
            end = at + len(content)
            _send({"file": name, "at": at, "bytes": len(content), "last": end >= size or not content}, content)
            at = end
            if at >= size or not content:
                return inode, at, changed


def _send(message: dict[str, Any], content: bytes = b"") -> None:
    sys.stdout.buffer.write(json.dumps(message).encode() + b"\n" + content)
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1], json.loads(sys.argv[2])))
    except (BrokenPipeError, KeyboardInterrupt):  # the board has ended
        os._exit(0)
