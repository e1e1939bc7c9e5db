"""Whether this process itself was silent: stopped, or on a machine that was suspended.

When it continues, the others have taken it for lost and may have ended. They are not to blame then.
"""

import contextlib
import time
from pathlib import Path

from phalanx.exchange.base import LostWorker

_PART = 2 / 3  # of the silence that others allow: from here on some of them may have given up
_CONNECT_AGAIN_S = 2.0  # for its connections to come back


class OwnSilence:
    """Looks at the clocks again and again. A pause in which no thread ran or wanted to is one in which it was stopped.

    Code that keeps Python's lock for long delays a look as well, but it runs, and heartbeats do not need the lock.
    """

    def __init__(self, me: str, silence_s: float, longest_look_s: float) -> None:
        self._me, self._silence_s, self._longest_look_s = me, silence_s, longest_look_s
        self._looked, self._busy = time.monotonic(), _busy_s()
        self._stopped_s = 0.0
        self._since_s = 0.0  # that it has run since then

    def look(self) -> float:
        """Call this often. Returns the seconds since the last call in which another process may be called silent.

        Those are none in which this one was stopped, and none in which it may still be connecting again.
        """
        now, busy = time.monotonic(), _busy_s()
        passed_s = now - self._looked
        busiest_s = max((seconds - self._busy.get(thread, 0.0) for thread, seconds in busy.items()), default=0.0)
        self._looked, self._busy = now, busy
        ran_s = min(passed_s, self._longest_look_s)
        self._since_s += ran_s
        if passed_s > _PART * self._silence_s and passed_s > 2 * self._longest_look_s and busiest_s < passed_s / 2:
            self._stopped_s, self._since_s, ran_s = passed_s, 0.0, 0.0
        elif self._since_s > self._silence_s:
            self._stopped_s = 0.0  # what is lost from now on has another cause
        return 0.0 if self._stopped_s and self._since_s < _CONNECT_AGAIN_S else ran_s

    def loss(self) -> LostWorker | None:
        """The error of a process that stood still until a moment ago, and is not in its job any more."""
        if not self._stopped_s:
            return None
        return LostWorker(
            f"{self._me} was taken for lost after {self._silence_s:g} s of silence",
            why=f"it stood still for {self._stopped_s:.0f} s: it was stopped (SIGSTOP, Ctrl-Z, a debugger), or its "
            "machine was suspended; the others have ended or gone on without it",
            remedy="go on with phalanx train --resume",
            lost=self._me,
        )


def _busy_s() -> dict[str, float]:
    """By thread: the seconds for which it has run, or has waited for a core. Where Linux does not tell, all at once."""
    found = {}
    with contextlib.suppress(OSError, ValueError, IndexError):
        for entry in Path("/proc/self/task").iterdir():
            with contextlib.suppress(OSError):  # it has just ended
                ran, waited = (entry / "schedstat").read_text(encoding="ascii").split()[:2]
                found[entry.name] = (int(ran) + int(waited)) / 1e9
    return found or {"all": time.process_time()}
