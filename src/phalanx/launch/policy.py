"""What follows a lost role: end the job, restart the role, restart as a new group, or continue without it. Pure."""

import signal
from collections.abc import Sequence
from dataclasses import dataclass

from phalanx.config.role import RoleKind
from phalanx.errors import EXIT_REFORM, EXIT_USER

# Restarts of trainers in async and ssp jobs if the user sets no number; also of helpers in any job.
DEFAULT_RESTARTS = 3
HELPERS: tuple[RoleKind, ...] = ("data", "teacher", "evaluator")  # a job goes on while one of them is restarted
CLEAN_EXITS = (0, 128 + signal.SIGINT, 128 + signal.SIGTERM)  # finished, or stopped on request


@dataclass(frozen=True)
class LostRole:
    """A role that failed, or whose host is gone (then `code` is None)."""

    kind: RoleKind
    rank: int
    host: str
    code: int | None
    why: str = ""
    error: str = ""  # with which it ended
    lost: str = ""  # the role whose loss made it end, by its own account; its own name where it was silent itself
    hindrance: str = ""  # why it was silent, of a role that did not end by itself

    @property
    def name(self) -> str:
        return f"{self.kind}-{self.rank}"

    @property
    def is_survivor(self) -> bool:
        """Whether it ended because another role was lost."""
        return self.code == EXIT_REFORM or self.lost not in ("", self.name)

    @property
    def how(self) -> str:
        if self.hindrance:
            return self.hindrance
        if self.is_survivor and self.lost:
            return f"ended because it lost {self.lost}"
        if self.code is None:
            return f"was lost with its host: {self.why}"
        if self.code < 0:
            return f"was killed by {signal.Signals(-self.code).name}" + (f": {self.why}" if self.why else "")
        return f"ended with code {self.code}" + (f" ({self.why})" if self.why else "")


@dataclass(frozen=True)
class End:
    """End the job, because of this role."""

    cause: LostRole


@dataclass(frozen=True)
class Restart:
    """Restart these roles. The others keep running."""

    lost: tuple[LostRole, ...]


@dataclass(frozen=True)
class Continue:
    """Continue without these roles."""

    lost: tuple[LostRole, ...]


@dataclass(frozen=True)
class NewGroup:
    """End all roles, and restart from the last checkpoint with `world` trainers."""

    cause: LostRole
    world: int


Decision = End | Restart | Continue | NewGroup


def cause_of(lost: Sequence[LostRole]) -> LostRole:
    """The role that most likely failed first. Survivors of a lost role exit too, and say so."""

    def priority(role: LostRole) -> int:
        if role.is_survivor:
            return 3
        if role.code is None:
            return 0
        return 1 if role.code < 0 else 2

    return min(lost, key=priority)


class Policy:
    """Decides, and counts restarts.

    Trainers of `independent` jobs (async, ssp) do not need one another; those of other jobs take every step together.
    """

    def __init__(self, *, independent: bool, max_restarts: int | None = None, min_workers: int | None = None) -> None:
        self._independent = independent
        self._restarts_left = (DEFAULT_RESTARTS if independent else 0) if max_restarts is None else max_restarts
        self._elastic = max_restarts is not None or min_workers is not None
        self._min_workers = min_workers
        self._evaluator_restarts_left = DEFAULT_RESTARTS
        self._stateless_restarts_left = DEFAULT_RESTARTS

    @property
    def elastic(self) -> bool:
        """Whether survivors of a lost worker save a checkpoint, for a new group or for the user's --resume."""
        return self._elastic

    def decide(self, lost: Sequence[LostRole], world: int, capacity: int | None) -> Decision:
        """`world` is the number of trainers before the loss; `capacity` what the remaining hosts take (None: any)."""
        cause = cause_of(lost)
        if cause.code == EXIT_USER and not cause.is_survivor:  # an error in settings or data: a restart would repeat it
            return End(cause)
        rest = [role for role in lost if role.kind not in HELPERS]
        evaluators = [role for role in lost if role.kind == "evaluator"]
        if not rest:
            return self._decide_evaluator(evaluators) if evaluators else self._decide_stateless(lost)
        lost, cause = rest, cause_of(rest)
        # Survivors that left by themselves are not lost: they come back.
        failed = [role for role in lost if role.code != EXIT_REFORM]
        trainers = [role for role in failed if role.kind == "trainer"]
        if self._independent and len(trainers) == len(lost) and all(role.rank > 0 for role in trainers):
            return self._decide_independent(cause, trainers, world)
        if not self._elastic:
            return End(cause)
        possible = world if capacity is None else min(world, capacity)
        enough = self._min_workers is not None and possible >= self._min_workers
        if self._restarts_left > 0 and (possible == world or enough):
            self._restarts_left -= 1
            return NewGroup(cause, possible)
        remaining = min(possible, world - len(trainers))
        enough = self._min_workers is not None and remaining >= self._min_workers
        if self._restarts_left == 0 and enough and trainers:
            return NewGroup(cause, remaining)
        return End(cause)

    def _decide_independent(self, cause: LostRole, trainers: Sequence[LostRole], world: int) -> Decision:
        if self._restarts_left >= len(trainers):
            self._restarts_left -= len(trainers)
            return Restart(tuple(trainers))
        if self._min_workers is not None and world - len(trainers) >= self._min_workers:
            return Continue(tuple(trainers))
        return End(cause)

    def _decide_stateless(self, lost: Sequence[LostRole]) -> Decision:
        """Data servers and teachers have no state to lose. One whose host is gone cannot come back to its address."""
        gone = tuple(role for role in lost if role.code is None)
        if gone or self._stateless_restarts_left < len(lost):
            return Continue(gone or tuple(lost))
        self._stateless_restarts_left -= len(lost)
        return Restart(tuple(lost))

    def _decide_evaluator(self, lost: Sequence[LostRole]) -> Decision:
        """An evaluator's state is in the run's files, so it can restart at any time."""
        self._evaluator_restarts_left -= 1
        return Restart(tuple(lost)) if self._evaluator_restarts_left >= 0 else End(lost[0])
