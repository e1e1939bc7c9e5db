"""A process in a pseudo-terminal, and what a person would see there."""

import errno
import fcntl
import os
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from tests.screen import CONTROL, Screen


class Terminal:
    """`phalanx WORDS` in a terminal of its own. The context manager ends it."""

    def __init__(
        self, words: list[str], *, cwd: Path, columns: int = 80, rows: int = 24, env: Mapping[str, str] | None = None
    ) -> None:
        self._ours, theirs = os.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "phalanx", *words],
            cwd=cwd,
            env={**environment, "TERM": "xterm-256color", **(env or {})},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)
        self._screen, self._lock = Screen(columns, rows), threading.Lock()
        self.written = ""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> "Terminal":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self._reader.join(60)
        os.close(self._ours)

    def _read(self) -> None:
        rest = b""
        while True:
            try:
                chunk = os.read(self._ours, 1 << 16)
            except OSError as error:
                if error.errno != errno.EIO:  # nobody has the other end open any more
                    raise
                return
            text = (rest + chunk).decode(errors="ignore")
            # A character or a control sequence may be cut in two: what ends so waits for its rest.
            cut = text.rfind("\x1b")
            whole = text if cut < 0 or CONTROL.fullmatch(text[cut:]) or len(text) - cut > 20 else text[:cut]
            rest = (rest + chunk)[len(whole.encode()) :]
            with self._lock:
                self.written += whole
                self._screen.feed(whole)

    @property
    def lines(self) -> list[str]:
        """All that it shows, with what has left it at the top."""
        with self._lock:
            return [line.rstrip() for line in self._screen.lines]

    def has(self, text: str) -> bool:
        return any(text in line for line in self.lines)

    def press(self, keys: bytes) -> None:
        os.write(self._ours, keys)

    def code(self) -> int:
        """How it ended; its output is then complete."""
        code = self.process.wait(300)
        self._reader.join(60)
        return code
