"""The thread of a teacher process that computes: loads teachers with a job's settings, then the logits of views."""

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import torch

from phalanx.custom import blame
from phalanx.engine.distill.logits import TeacherLogits
from phalanx.engine.distill.service.body import SentView, pack_logits
from phalanx.engine.distill.service.terms import JoinTerms
from phalanx.engine.inputs import Inputs
from phalanx.engine.objective import View
from phalanx.errors import UserError
from phalanx.machine.settings import Settings


@dataclass(frozen=True, eq=False)
class Session:
    """A trainer that has joined; new each time that it joins."""

    number: int
    identity: bytes
    terms: JoinTerms


@dataclass(frozen=True)
class Task:
    """Load the teachers for a trainer (without a view), or compute the logits of a view."""

    session: Session
    number: int = 0
    view: SentView | None = None


@dataclass(frozen=True)
class FinishedTask:
    """A task and its logits, or the error that it ended with."""

    task: Task
    control: bytes = b""
    body: bytes | None = None
    error: UserError | None = None


LoadTeachers = Callable[[JoinTerms], tuple[Settings, TeacherLogits]]


class LogitsWorker:
    """Does tasks in their order, in one thread that uses as many cores as trainers do. `finished` is called for each.

    A view that is asked for twice is computed once while it waits, and again after it was answered: the same logits.
    """

    def __init__(self, load: LoadTeachers, finished: Callable[[FinishedTask], None]) -> None:
        self._load, self._finished = load, finished
        self._tasks: deque[Task] = deque()
        self._changed = threading.Condition()
        self._stopped = False
        self._loaded: tuple[object, Settings, TeacherLogits] | None = None
        self._inputs: tuple[Session, Inputs] | None = None
        self._working: Task | None = None
        self._idle_s, self._since = 0.0, time.perf_counter()
        self.samples = 0
        self._thread = threading.Thread(target=self._work, name="phalanx-logits", daemon=True)
        self._thread.start()

    def add(self, task: Task) -> None:
        with self._changed:
            begun = [self._working] if self._working is not None else []
            if any((each.session, each.number) == (task.session, task.number) for each in [*begun, *self._tasks]):
                return  # it was asked for again before it was answered
            self._tasks.append(task)
            self._changed.notify()

    def forget(self, session: Session) -> None:
        """Drop the tasks of a trainer that is gone or has joined again."""
        with self._changed:
            self._tasks = deque(each for each in self._tasks if each.session is not session)

    @property
    def waiting(self) -> int:
        return len(self._tasks)

    def idle_s(self) -> float:
        """Seconds so far in which there was nothing to compute."""
        with self._changed:
            return self._idle_s + (time.perf_counter() - self._since if self._working is None else 0.0)

    def close(self) -> None:
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        self._thread.join(timeout=60)
        if self._loaded is not None:
            self._loaded[2].close()

    def _work(self) -> None:
        while (task := self._next()) is not None:
            try:
                done = self._do(task)
            except UserError as error:
                done = FinishedTask(task, error=error)
            except Exception as error:  # a view that cannot be computed must not end the process
                done = FinishedTask(task, error=blame(error) or _unexpected(error))
            with self._changed:
                self._working, self._since = None, time.perf_counter()
            self._finished(done)

    def _next(self) -> Task | None:
        with self._changed:
            self._changed.wait_for(lambda: self._stopped or self._tasks)
            if self._stopped:
                return None
            self._idle_s += time.perf_counter() - self._since
            self._working = self._tasks.popleft()
            return self._working

    def _do(self, task: Task) -> FinishedTask:
        settings, teachers = self._teachers(task.session.terms)
        if task.view is None:
            return FinishedTask(task)
        sent, terms = task.view, task.session.terms
        if self._inputs is None or self._inputs[0] is not task.session:
            self._inputs = (task.session, terms.inputs(settings))
        images, targets = self._inputs[1].training(sent.micro, sent.epoch, sent.start, sent.step)
        view = View(images, targets, sent.micro, sent.epoch, sent.start, sent.step)
        with torch.no_grad(), settings.autocast():
            logits = teachers.logits(view)
        self.samples += sent.micro.count
        return FinishedTask(task, *pack_logits(logits, terms.precision))

    def _teachers(self, terms: JoinTerms) -> tuple[Settings, TeacherLogits]:
        """The teachers for these settings; loaded anew where another job had others."""
        settled = (terms.machine, terms.spec, terms.resize, terms.teachers)
        if self._loaded is None or self._loaded[0] != settled:
            if self._loaded is not None:
                self._loaded[2].close()
                self._loaded = self._inputs = None
            settings, teachers = self._load(terms)
            self._loaded, self._inputs = (settled, settings, teachers), None
        return self._loaded[1], self._loaded[2]


def _unexpected(error: Exception) -> UserError:
    return UserError(
        "the logits of a view could not be computed",
        why=f"{type(error).__name__}: {error}",
        remedy="see what the teacher printed",
    )
