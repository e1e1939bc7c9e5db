"""Tells a command or a web address that a run has ended, failed, or reached a new best. Never stops training."""

import json
import platform
import queue
import re
import shlex
import subprocess
import threading
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path

from phalanx.errors import UserError
from phalanx.observe.lines import accuracies
from phalanx.runs import events as ev
from phalanx.runs.events import Event

FIELDS = ("event", "run", "name", "step", "text", "host")
TIMEOUT_S = 20.0  # of a command or a request
_PLACE = re.compile(r"\{(\w+)\}")


def is_address(target: str) -> bool:
    return target.startswith(("http://", "https://"))


def check_target(target: str) -> None:
    """Refuse a command that cannot be read, before any work is done."""
    if is_address(target):
        return
    try:
        words = shlex.split(target)
    except ValueError as error:
        raise UserError(f"--notify cannot be {target!r}", why=str(error), remedy="close its quotes") from error
    unknown = [name for name in _PLACE.findall(target) if name not in FIELDS]
    if not words or unknown:
        raise UserError(
            f"--notify cannot be {target!r}",
            why=f"{{{unknown[0]}}} is unknown" if unknown else "it is empty",
            remedy=f"a command with {', '.join(f'{{{name}}}' for name in FIELDS)}, or an http address",
        )


def words_of(command: str, fields: Mapping[str, str]) -> list[str]:
    """The command's words. It is split before values are filled in, so a value cannot add words; no shell sees it."""
    return [_PLACE.sub(lambda found: fields[found[1]], word) for word in shlex.split(command)]


def message_of(event: Event, run: Path) -> dict[str, str] | None:
    """What is told of an event; None of most."""
    if isinstance(event, ev.End):
        kind, text = "end", f"finished after {event.step:,} steps"
    elif isinstance(event, ev.Stop):
        kind, text = "failure", f"stopped at step {event.step:,}: {event.reason}"
    elif isinstance(event, ev.Eval) and event.best:
        kind, text = "best", accuracies(event.top1, event.topk, event.k, ", ", event.metrics)
    else:
        return None
    values = (kind, str(run), run.resolve().name, str(event.step), text, platform.node())
    return dict(zip(FIELDS, values, strict=True))


class Notifier:
    """A sink of events that sends messages from a thread of its own. A failure is told once."""

    def __init__(self, target: str, run: Path, tell: Callable[[str], None]) -> None:
        self._target, self._run, self._tell = target, run, tell
        self._queue: queue.Queue[dict[str, str] | None] = queue.Queue(256)
        self._told = False
        self._thread = threading.Thread(target=self._work, name="notify", daemon=True)
        self._thread.start()

    def take(self, event: Event) -> None:
        message = message_of(event, self._run)
        if message is not None:
            try:
                self._queue.put_nowait(message)
            except queue.Full:
                self._complain("it is too slow")

    def close(self) -> None:
        try:
            self._queue.put(None, timeout=TIMEOUT_S)
        except queue.Full:
            return
        self._thread.join(2 * TIMEOUT_S)

    def _work(self) -> None:
        while (message := self._queue.get()) is not None:
            try:
                send(self._target, message)
            except Exception as error:  # whatever it is, training goes on
                self._complain(str(error) or type(error).__name__)

    def _complain(self, why: str) -> None:
        if not self._told:
            self._told = True
            self._tell(f"a notification was not delivered: {why}")


def send(target: str, message: Mapping[str, str]) -> None:
    """Run the command, or POST the message as JSON."""
    if is_address(target):
        body = json.dumps({**message, "step": int(message["step"])}).encode()
        request = urllib.request.Request(target, body, {"Content-Type": "application/json"}, method="POST")
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as reply:
            reply.read(1)
        return
    done = subprocess.run(
        words_of(target, message),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        timeout=TIMEOUT_S,
        check=False,
    )
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        raise RuntimeError(f"the command ended with code {done.returncode}" + (f": {said[-1][:200]}" if said else ""))
