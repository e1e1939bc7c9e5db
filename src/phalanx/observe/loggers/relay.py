"""Gives a run's events to one logger in a thread of its own. Training never waits for it, nor fails with it."""

import queue
import threading
from collections.abc import Callable

from phalanx.observe.loggers.base import LoggedRun, Logger
from phalanx.observe.loggers.numbers import numbers_of
from phalanx.runs.events import Event, Record, record_of

QUEUED = 4096  # events; a logger that is so far behind loses the next ones
CLOSE_S = 60.0  # how long the end of a run waits for what is queued


class Relay:
    """A sink of events that feeds a logger from a bounded queue. `tell` is called once if something goes wrong.

    Its thread starts with the first event, when everyone who is to hear of a failure is listening.
    """

    def __init__(self, name: str, logger: Logger, run: LoggedRun, tell: Callable[[str], None]) -> None:
        self._name, self._logger, self._run, self._tell = name, logger, run, tell
        self._queue: queue.Queue[Record | None] = queue.Queue(QUEUED)
        self._told = False
        self._thread = threading.Thread(target=self._work, name=f"log-{name}", daemon=True)
        self._starting = threading.Lock()

    def take(self, event: Event) -> None:
        self.record(record_of(event))

    def record(self, record: Record) -> None:
        try:
            self._queue.put_nowait(record)
        except queue.Full:
            self._complain("is too slow, and events were left out")
        with self._starting:
            if self._thread.ident is None:
                self._thread.start()

    def close(self) -> None:
        """Wait for what is queued, for a while."""
        if self._thread.ident is None:
            return
        try:
            self._queue.put(None, timeout=CLOSE_S)
        except queue.Full:
            return
        self._thread.join(CLOSE_S)
        if self._thread.is_alive():
            self._complain(f"has not taken everything within {CLOSE_S:.0f} s")

    def _work(self) -> None:
        try:
            failed = self._log()
        except BaseException as error:  # whatever a service's client raises, training goes on
            self._complain(f"failed: {_first_line(error)}")
            while self._queue.get() is not None:  # nobody else empties it
                pass
            return
        try:
            self._logger.finish(failed=failed)
        except BaseException as error:
            self._complain(f"failed: {_first_line(error)}")

    def _log(self) -> bool:
        """Give the logger all events up to the last one. Whether the run failed."""
        self._logger.begin(self._run)
        failed = False
        while (record := self._queue.get()) is not None:
            if record["kind"] == "resume":
                self._logger.rewind(record["saved_step"])
            failed = record["kind"] == "stop" or (failed and record["kind"] not in ("start", "end"))
            values = numbers_of(record)
            if values:
                self._logger.numbers(record["step"], record["t"], values)
        return failed

    def _complain(self, what: str) -> None:
        if not self._told:
            self._told = True
            later = f"phalanx export-log {self._run.folder} --to {self._name}"
            self._tell(f"logging to {self._name} {what}; training goes on; later: {later}")


def _first_line(error: BaseException) -> str:
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0][:300]}" if text else type(error).__name__
