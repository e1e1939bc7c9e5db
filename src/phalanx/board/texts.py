"""Logs of a run: which there are, their last lines, and lines that contain a word."""

import os
import re
from collections import deque
from collections.abc import Iterator
from typing import Any, BinaryIO

from phalanx.board.places import Place, printable_name
from phalanx.runs.inside import open_inside

_NAME = re.compile(r"log\.txt|logs/[\w.-]+\.(log|jsonl)")
_TAIL = 256 << 10  # bytes that are read without a search
_SEARCHED = 64 << 20
_MOST_LINES = 2000
_LONGEST = 4000  # bytes of a line; the rest is shown as a line of its own


def log_names(place: Place) -> list[str]:
    """log.txt, and those of each role in logs/."""
    names = ["log.txt"] if (place.path / "log.txt").is_file() else []
    try:
        with os.scandir(place.path / "logs") as entries:
            found = sorted(entry.name for entry in entries if entry.is_file(follow_symlinks=False))
    except OSError:
        found = []
    return names + [f"logs/{name}" for name in found if is_log(f"logs/{name}") and printable_name(name) == name]


def is_log(name: str) -> bool:
    return _NAME.fullmatch(name) is not None


def lines_of(place: Place, name: str, search: str = "") -> dict[str, Any]:
    """The last lines of the file; with `search`, the last ones that contain it, in any case."""
    with open_inside(place.path, name) as file:
        size = os.fstat(file.fileno()).st_size
        begin = max(0, size - (_SEARCHED if search else _TAIL))
        file.seek(begin)
        if begin:
            file.readline(_TAIL)  # the first one is incomplete
        word, found, kept = search.lower(), 0, deque[str](maxlen=_MOST_LINES)
        for line in _lines(file, size):
            if word in line.lower():
                found += 1
                kept.append(line)
    return {"file": name, "size": size, "cut": begin > 0 or found > _MOST_LINES, "lines": list(kept)}


def _lines(file: BinaryIO, end: int) -> Iterator[str]:
    """One line after the other: a large file needs no memory."""
    while file.tell() < end and (line := file.readline(_LONGEST)):
        yield from line.decode("utf-8", "replace").splitlines()
