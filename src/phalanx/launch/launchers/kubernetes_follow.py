"""Follows a job in a cluster: why its pods wait, the first trainer's lines, how it ended. Ctrl-C saves and ends it."""

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import IO, TextIO

from rich.console import Console
from rich.text import Text

from phalanx.errors import EXIT_USER, UserError
from phalanx.launch.launchers.follow import Cancelled, interruptible
from phalanx.launch.launchers.kubectl import KubectlError
from phalanx.launch.launchers.kubernetes_job import KubernetesJob
from phalanx.launch.launchers.kubernetes_state import JobState, PodHistory, PodState, exit_code
from phalanx.launch.launchers.manifests import GRACE_S
from phalanx.runs.folder import log_path

_LOOK_S = 1.0
_HOPELESS_S = 60.0  # that a reason which does not go away by itself may last
_SILENT_S = 120.0  # without an answer of the cluster
_OVERDUE_S = GRACE_S + 15.0  # for pods that were told to end, until their nodes count as lost
_MOST_LOGS = 16  # pods whose lines are kept here; each takes a process


def follow(job: KubernetesJob, logs: Path | None, console: Console, out: TextIO = sys.stdout) -> int:
    """Follow the job to its end. Returns an exit code. The lines of all pods are kept in `logs`, if that is given."""
    follower = Follower(job, LogReaders(job, logs, out), console)
    with interruptible():
        try:
            return follower.watch()
        except Cancelled:
            _say(console, f"stopping job {job}; it saves a checkpoint. Press Ctrl-C again to stop waiting")
            with suppress(Cancelled):
                job.stop()
                follower.watch()
                return 128 + signal.SIGINT
            _say(console, f"job {job} may not have ended yet: phalanx status k8s:{job}")
            return 128 + signal.SIGINT
        finally:
            follower.logs.close()


class Follower:
    """Looks at a job again and again, and says what has changed."""

    def __init__(self, job: KubernetesJob, logs: "LogReaders", console: Console) -> None:
        self._job, self.logs, self._console = job, logs, console
        self._history = PodHistory()
        self._said = ""
        self._hopeless_since: float | None = None
        self._ending_since: float | None = None
        self._restarts = 0

    def watch(self) -> int:
        answered = time.monotonic()
        while True:
            try:
                state = self._job.look()
                answered = time.monotonic()
            except KubectlError:
                if time.monotonic() - answered > _SILENT_S:
                    raise
                time.sleep(_LOOK_S)
                continue
            self._history.add(state)
            self._tell(state)
            self.logs.follow(state)
            if state.over:
                return self._end(state)
            if left := self._overdue(state):
                return self._leave(left)
            self._give_up(state)
            time.sleep(_LOOK_S)

    def _tell(self, state: JobState) -> None:
        text = state.text
        if state.restarts > self._restarts and not state.over:
            cause = self._history.cause()
            _say(self._console, f"{f'{cause.where} {cause.how}' if cause else 'a pod failed'}; the job starts again")
        self._restarts = max(self._restarts, state.restarts)
        if text != self._said and not state.over:
            _say(self._console, f"job {self._job} is {text}")
        self._said = text

    def _give_up(self, state: JobState) -> None:
        """End a job whose pods cannot start."""
        hopeless = [wait for wait in state.waits if wait.hopeless]
        now = time.monotonic()
        self._hopeless_since = (self._hopeless_since or now) if hopeless else None
        if self._hopeless_since is None or now - self._hopeless_since < _HOPELESS_S:
            return
        self._job.stop()
        who = ", ".join(hopeless[0].pods) or "the pods"
        raise UserError(
            f"{who} of job {self._job} cannot start; it was removed",
            why=hopeless[0].why,
            remedy="correct the image, the volume or the resources that are asked for, and launch again",
        )

    def _overdue(self, state: JobState) -> list[PodState]:
        """Pods that their nodes should have ended long ago, by the clock here: the cluster's may differ."""
        now = time.monotonic()
        self._ending_since = (self._ending_since or now) if state.unended else None
        return state.unended if self._ending_since is not None and now - self._ending_since > _OVERDUE_S else []

    def _leave(self, left: Sequence[PodState]) -> int:
        """The rest of the job is on a node that does not answer: its pods cannot be seen to end."""
        self.logs.close()
        _say(self._console, f"job {self._job} has not ended: the node of {left[0].where} does not answer")
        names = " ".join(pod.name for pod in left)
        _say(
            self._console,
            f"  it ends when that node is back; if it is lost for good: kubectl delete pod {names} --force",
        )
        return exit_code(None)

    def _end(self, state: JobState) -> int:
        self.logs.finish()
        if state.kind == "finished":
            _say(self._console, f"job {self._job} has finished")
            return 0
        cause = self._history.cause(state.detail)
        if state.kind == "gone":
            _say(self._console, f"job {self._job} was stopped and deleted; its pods have ended")
            return 128 + signal.SIGTERM
        _say(self._console, f"job {self._job} has failed: {state.detail}")
        if "active longer than specified deadline" in state.detail:
            _say(self._console, "  its time limit (--time) was over; its workers saved a checkpoint")
            return exit_code(None)
        if cause is not None:
            _say(self._console, f"cause: {cause.where} {cause.how}")
            for line in _reasons(cause):
                _say(self._console, line)
        return exit_code(cause)


def _reasons(cause: PodState) -> list[str]:
    error = cause.error
    if error is None or cause.code != EXIT_USER:
        return []
    return [f"  {mark}: {text}" for mark, text in (("why", error.why), ("try", error.remedy)) if text]


class LogReaders:
    """`kubectl logs -f` of pods: prints the first trainer's lines, and keeps those of all if there is a folder."""

    def __init__(self, job: KubernetesJob, folder: Path | None, out: TextIO) -> None:
        self._job, self._folder, self._out = job, folder, out
        self._readers: dict[str, tuple[subprocess.Popen[bytes], threading.Thread]] = {}

    def follow(self, state: JobState) -> None:
        """Read the logs of pods that have begun."""
        for pod in state.pods:
            wanted = pod.index == 0 or (self._folder is not None and len(self._readers) < _MOST_LOGS)
            if pod.begun and wanted and pod.name not in self._readers:
                self._start(pod)

    def _start(self, pod: PodState) -> None:
        argv = self._job.log_command(pod, follow=True)
        process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
        )
        assert process.stdout is not None
        path = None
        if self._folder is not None:
            self._folder.mkdir(parents=True, exist_ok=True)
            path = log_path(self._folder, pod.role)
        thread = threading.Thread(target=self._copy, args=(process.stdout, path, pod.index == 0), daemon=True)
        thread.start()
        self._readers[pod.name] = (process, thread)

    def _copy(self, lines: IO[bytes], path: Path | None, first: bool) -> None:
        with path.open("ab") if path else nullcontext() as log:
            for line in lines:
                if log is not None:
                    log.write(line)
                    log.flush()
                if first:
                    self._out.write(line.decode(errors="replace"))
                    self._out.flush()

    def finish(self) -> None:
        """The pods have ended: wait for their last lines."""
        for _, thread in self._readers.values():
            thread.join(timeout=10)

    def close(self) -> None:
        for process, _ in self._readers.values():
            if process.poll() is None:
                process.terminate()
            process.wait()


def _say(console: Console, text: str) -> None:
    console.print(Text(text), soft_wrap=True)
