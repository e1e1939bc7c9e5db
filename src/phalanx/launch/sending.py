"""Sending the current directory to hosts by rsync, with one bar for all of them."""

import asyncio
import contextlib
import re
import shlex
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Callable, Sequence

from phalanx.errors import UserError
from phalanx.launch.agent_handle import SSH_FAILED
from phalanx.launch.channel import Disconnect
from phalanx.launch.remote_shell import Sync
from phalanx.launch.screen import Screen

# rsync's exit codes. Hosts that share a disk may write the same folder at once, and one makes a folder that the other
# was about to make; the next try finds it.
_PARTLY_SENT, _FILES_VANISHED, _NO_RSYNC, _TRIES = 23, 24, 127, 3
_MOST_AT_ONCE = 32  # one machine sends to all
_PERCENT = re.compile(rb"(\d+)%")


class Sending:
    """Sends to `hosts` hosts. The bar appears with the first, and goes with the last or when this is closed."""

    def __init__(self, screen: Screen, hosts: int) -> None:
        self._screen, self._hosts, self._left = screen, hosts, hosts
        self._at_once = asyncio.Semaphore(_MOST_AT_ONCE)
        self._shown = contextlib.ExitStack()
        self._advance: Callable[[int], None] | None = None

    async def send(self, sync: Sync, argv: Sequence[str]) -> Disconnect | None:
        """Run rsync. Returns a Disconnect if the host cannot be reached; raises other errors."""
        async with self._at_once:
            if self._advance is None:
                self._advance = self._shown.enter_context(self._screen.progress("files sent, %:", 100 * self._hosts))
            try:
                return await _send(sync, argv, self._advance)
            finally:
                self._left -= 1
                if not self._left:
                    self.close()

    def close(self) -> None:
        self._shown.close()


async def _send(sync: Sync, argv: Sequence[str], advance: Callable[[int], None]) -> Disconnect | None:
    done = 0
    for tries_left in range(_TRIES - 1, -1, -1):
        process = await asyncio.create_subprocess_exec(
            *argv, stdin=DEVNULL, stdout=PIPE, stderr=PIPE, start_new_session=True
        )
        assert process.stdout is not None
        assert process.stderr is not None
        errors = asyncio.create_task(process.stderr.read())
        while told := await process.stdout.read(1 << 16):
            percent = max([done, *(min(100, int(found)) for found in _PERCENT.findall(told))])
            advance(percent - done)
            done = percent
        printed = (await errors).decode(errors="replace").strip()
        code = await process.wait()
        if code in (0, _FILES_VANISHED):
            advance(100 - done)
            return None
        if code == SSH_FAILED:
            return Disconnect(code, tuple(printed.splitlines()[-5:]))
        if code != _PARTLY_SENT or not tries_left:
            raise _error(sync, code, printed, argv)
    return None


def _error(sync: Sync, code: int, printed: str, argv: Sequence[str]) -> UserError:
    low = printed.lower()
    if "permission denied" in low or "read-only" in low:
        remedy = "choose a folder that you may write to with --sync-dst-dir"
    elif "no space left" in low or "quota" in low:
        remedy = "free disk space there, or choose another folder with --sync-dst-dir"
    elif "not found" in low or code == _NO_RSYNC:
        remedy = "install rsync there (Debian: rsync)"
    else:
        remedy = f"try it by hand: {shlex.join(argv)}"
    lines = [line for line in printed.splitlines() if line.strip()]
    output = " / ".join(lines[:3]) or "it printed nothing"
    return UserError(
        f"{sync.source} was not sent to {sync.folder}", why=f"rsync ended with code {code} ({output})", remedy=remedy
    )
