"""What another host sends, checked before it is written: known names, bounded sizes, regular files alone.

That host may be anyone's. It decides what its runs show, and nothing else here.
"""

import json
import os
import re
import selectors
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from phalanx.board.places import DEPTH

# Files of a run that are copied. Of checkpoints, what describes them: weights stay there.
FILES = (
    r"(config\.yaml|(origins|summary|job|batch|notes|plan|folds)\.json|events(-evaluator)?\.jsonl|log\.txt|\.lock"
    r"|logs/[\w.-]+\.(log|jsonl)|eval[\w.-]*/[\w-]+\.(json|tsv)|eval[\w.-]*/mistakes/\d{1,9}\.png"
    r"|checkpoints/best\.json|checkpoints/step-\d{1,12}/[\w-]+\.json)"
)
LARGEST = 256 << 20  # bytes of a file
_MOST_BYTES = 4 << 30  # of all
_MOST_FILES = 100_000
_LONGEST_MESSAGE = 1 << 16
_LARGEST_CHUNK = 1 << 20
_NAME = re.compile(rf"([^/\0]{{1,255}}/){{0,{DEPTH}}}{FILES}", re.DOTALL)
_INCOMING = ".incoming"  # in the copy's folder; no name that is taken begins so


class Refused(ValueError):
    """The other host sent what no honest one does."""


class Stream:
    """The output of a process, read with a limit of time. The beginning of its errors is kept."""

    def __init__(self, out: IO[bytes], errors: IO[bytes], silence_s: float) -> None:
        self._out, self._errors, self._silence_s = out.fileno(), errors.fileno(), silence_s
        self._selector = selectors.DefaultSelector()
        for descriptor in (self._out, self._errors):
            self._selector.register(descriptor, selectors.EVENT_READ)
        self._held = bytearray()
        self.said = b""

    def close(self) -> None:
        self._selector.close()

    def message(self) -> dict[str, Any]:
        """The next line. EOFError at the end, TimeoutError if nothing comes."""
        while (end := self._held.find(b"\n")) < 0:
            if len(self._held) > _LONGEST_MESSAGE:
                raise Refused("a message without an end")
            self._more()
        line = bytes(self._held[:end])
        del self._held[: end + 1]
        try:
            found = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise Refused("a message that is not JSON") from error
        if not isinstance(found, dict):
            raise Refused("a message that is no object")
        return found

    def content(self, count: int) -> bytes:
        while len(self._held) < count:
            self._more()
        found = bytes(self._held[:count])
        del self._held[:count]
        return found

    def _more(self) -> None:
        deadline = time.monotonic() + self._silence_s
        while (left := deadline - time.monotonic()) > 0:
            for key, _ in self._selector.select(left):
                chunk = os.read(key.fd, 1 << 16)
                if key.fd == self._out and chunk:
                    self._held += chunk
                    return
                if key.fd == self._out:
                    self._read_errors()
                    raise EOFError
                if not chunk:
                    self._selector.unregister(key.fd)
                self.said = (self.said + chunk)[:4096]
        raise TimeoutError(f"no answer for {self._silence_s:.0f} s")

    def _read_errors(self) -> None:
        """What is left of them, now that the process has ended its output."""
        self._selector.unregister(self._out)
        while self._selector.get_map() and len(self.said) < 4096 and self._selector.select(1.0):
            chunk = os.read(self._errors, 1 << 12)
            if not chunk:
                return
            self.said += chunk


@dataclass
class Copy:
    """A folder here that holds what the other host sent. Only this writes to it."""

    here: Path
    sizes: dict[str, int] = field(default_factory=dict)
    large: dict[str, int] = field(default_factory=dict)  # files that stay there
    total: int = 0  # bytes of `sizes`
    _incoming: tuple[str, int] | None = None  # the file that is being written anew, and its bytes so far
    _whole: bool = False  # every file has been sent once

    def take(self, message: Mapping[str, Any], stream: Stream) -> None:
        """Do what a message says, or refuse it. OSError where this disk is full."""
        if "gone" in message:
            name = _checked(message["gone"])
            self.total -= self.sizes.pop(name, 0)
            (self.here / name).unlink(missing_ok=True)
        elif "large" in message:
            if len(self.large) < _MOST_FILES:
                self.large[_checked(message["large"])] = _count(message, "bytes", 1 << 62)
        elif "file" in message:
            self._write(_checked(message["file"]), message, stream)
        elif "pass" not in message:
            raise Refused("a message of an unknown kind")
        elif not self._whole:
            self._whole = True
            self._remove_others()

    def _remove_others(self) -> None:
        """Files of an earlier connection that are not there any more."""
        for path in self.here.rglob("*"):
            if path.is_file() and path.relative_to(self.here).as_posix() not in self.sizes:
                path.unlink()

    def _write(self, name: str, message: Mapping[str, Any], stream: Stream) -> None:
        at, count = _count(message, "at", LARGEST), _count(message, "bytes", _LARGEST_CHUNK)
        appended = at > 0 and self._incoming is None
        known = self.sizes.get(name, -1) if appended else self._incoming[1] if at and self._incoming else 0
        if at != known or (at and self._incoming is not None and self._incoming[0] != name):
            raise Refused(f"a part of {name!r} at {at} that does not follow the one before")
        total = self.total - self.sizes.get(name, 0) + at + count
        if at + count > LARGEST or total > _MOST_BYTES or len(self.sizes) > _MOST_FILES:
            raise Refused(f"more than a board copies: {len(self.sizes)} files, {total / 1e6:.0f} MB")
        content = stream.content(count)
        target = self.here / name if appended else self.here / _INCOMING
        try:
            with target.open("ab" if at else "wb") as file:
                file.write(content)
            if appended or message.get("last") is True:
                if not appended:
                    (self.here / name).parent.mkdir(parents=True, exist_ok=True)
                    target.replace(self.here / name)
                    self._incoming = None
                self.sizes[name], self.total = at + count, total
            else:
                self._incoming = name, at + count
        except (FileExistsError, NotADirectoryError, IsADirectoryError) as error:
            raise Refused(f"{name!r}, which is both a file and a folder") from error


def _checked(name: Any) -> str:
    """The name of a file that is wanted. It cannot lead out of the folder."""
    if not isinstance(name, str) or len(name) > 2000 or not _NAME.fullmatch(name):
        raise Refused(f"{str(name)[:100]!r}, which is no file of a run")
    try:
        longest = max(len(os.fsencode(part)) for part in name.split("/"))
    except UnicodeEncodeError as error:
        raise Refused(f"{name[:100]!r}, which is no file name") from error
    if longest > 255 or any(part in (".", "..") for part in name.split("/")):
        raise Refused(f"{name[:100]!r}, which leads elsewhere")
    return name


def _count(message: Mapping[str, Any], name: str, most: int) -> int:
    value = message.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
        raise Refused(f"{name} = {str(value)[:40]!r}")
    return value
