"""Runs on another host: one ssh connection, over which the small files of runs come, and then what they gain.

Nothing is written there. Why not rsync: it would log in every few seconds, old ones trust what a host sends, and none
bounds what a host can make it write.
"""

import contextlib
import json
import subprocess
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from phalanx.board.places import DEPTH, MARKS, NOT_RUNS
from phalanx.board.received import FILES, LARGEST, Copy, Refused, Stream
from phalanx.errors import UserError

EVERY_S = 1.0  # between looks at the files there
_SILENCE_S = 40.0  # without a word, the connection is given up: the other side speaks after every look
_FIRST_S = 15.0  # for a first complete copy, before the page is shown anyway
_AGAIN_S = 5.0  # before it is connected to again
_FOLDERS = r"logs|eval[\w.-]*|eval[\w.-]*/mistakes|checkpoints|checkpoints/step-\d{1,12}"
Shell = Callable[[Sequence[str]], Sequence[str]]  # from a command for the host to one for here


@dataclass
class Mirror:
    """A folder here that follows one on a host."""

    host: str  # as the user calls it
    there: str
    here: Path
    shell: Shell
    problem: str = ""  # why what is shown may be old or incomplete
    _process: "subprocess.Popen[bytes] | None" = None
    _ended: threading.Event = field(default_factory=threading.Event)
    _whole: threading.Event = field(default_factory=threading.Event)  # all files have come once, or never will
    _first_error: UserError | None = None

    def follow(self) -> None:
        """Connect, and copy in a thread from then on. A UserError where the folder cannot be had."""
        threading.Thread(target=self._follow, name=f"copy of {self.host}", daemon=True).start()
        self._whole.wait(_FIRST_S)
        if self._first_error is not None:
            raise self._first_error

    def end(self) -> None:
        self._ended.set()
        with contextlib.suppress(AttributeError, OSError):
            self._process.kill()  # type: ignore[union-attr]

    def _follow(self) -> None:
        """Copy, and connect again when that ends, except to a host that fails at once or sends nonsense."""
        while not self._ended.is_set():
            try:
                self._copy()
            except Refused as error:
                refused = f"it sends what no run has: {printable(str(error))}"
                self._fail(UserError(f"{self.shown} is not copied any more", why=refused))
                return
            except UserError as error:
                if self._fail(error):
                    return
            except OSError as error:  # of this host: its disk is full, for example
                self._fail(self._error(error.strerror or str(error)))
            self._ended.wait(_AGAIN_S)

    def _fail(self, error: UserError) -> bool:
        """Tell it: who waits for the first copy, or the page. Whether it was the former."""
        is_first = not self._whole.is_set()
        if is_first:
            self._first_error = error
        self.problem = f"{error.what}: {error.why}. What is shown may be old."
        self._whole.set()
        return is_first

    def _copy(self) -> None:
        """One connection, until it breaks. It never returns: what ends it is raised."""
        wanted = {"files": FILES, "folders": _FOLDERS, "marks": MARKS, "not_runs": sorted(NOT_RUNS)}
        limits = {"depth": DEPTH, "largest": LARGEST, "every_s": EVERY_S}
        command = self.shell(["python3", "-", self.there, json.dumps({**wanted, **limits})])
        try:
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0
            )
        except OSError as error:
            raise self._error(f"{command[0]}: {error.strerror}") from error
        self._process = process
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        with process:
            stream = Stream(process.stdout, process.stderr, _SILENCE_S)
            try:
                with contextlib.suppress(BrokenPipeError):
                    process.stdin.write(Path(__file__).with_name("sender.py").read_bytes())
                    process.stdin.close()
                self._take_all(stream)
            except EOFError:
                raise self._ended_by_itself(stream, process) from None
            except TimeoutError as error:
                raise self._error(str(error)) from error
            finally:
                stream.close()
                process.kill()

    def _take_all(self, stream: Stream) -> None:
        copy = Copy(self.here)
        while True:
            message = stream.message()
            if "error" in message:
                raise self._error(printable(str(message["error"])[:200]))
            copy.take(message, stream)
            if "pass" in message:
                names = sorted(copy.large)
                self.problem = f"{self.shown}: too large to copy: {', '.join(map(printable, names[:3]))}" * bool(names)
                self._whole.set()

    def _ended_by_itself(self, stream: Stream, process: "subprocess.Popen[bytes]") -> UserError:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(5)
        lines = [line for line in stream.said.decode(errors="replace").splitlines() if line.strip()]
        if process.returncode == 127:
            return self._error("there is no python3 on that host")
        return self._error(printable(lines[-1]) if lines else f"the connection ended with code {process.returncode}")

    @property
    def shown(self) -> str:
        return f"{self.host}:{self.there}"

    def _error(self, why: str) -> UserError:
        remedy = f"check that `ssh {self.host} ls {self.there}` works without a question, or give --ssh"
        return UserError(f"{self.shown} cannot be read", why=why, remedy=remedy)


def printable(text: str) -> str:
    """Text of another host for a terminal: without characters that would control it."""
    return "".join(each if each.isprintable() else "�" for each in text[:300])
