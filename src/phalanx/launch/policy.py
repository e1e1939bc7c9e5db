"""What becomes of a job that lost a role: end it, start the role anew, form the group anew, or go on without. Pure."""

import signal
from collections.abc import Sequence
from dataclasses import dataclass

from phalanx.config.role import RoleKind
from phalanx.errors import EXIT_REFORM, EXIT_USER

# Trainers of async and ssp jobs are started anew so often, unless the user says how often; data servers of any job too.
FORGIVEN = 3
POLITE = (0, 128 + signal.SIGINT, 128 + signal.SIGTERM)  # a role that ended so did what it was told


@dataclass(frozen=True)
class Lost:
    """A role that ended badly, or whose host is gone (`code` is None then)."""

    kind: RoleKind
    rank: int
    host: str
    code: int | None
    why: str = ""

    @property
    def name(self) -> str:
        return f"{self.kind}-{self.rank}"

    @property
    def how(self) -> str:
        if self.code is None:
            return f"was lost with its host: {self.why}"
        if self.code < 0:
            return f"was killed by {signal.Signals(-self.code).name}"
        return f"ended with code {self.code}" + (f" ({self.why})" if self.why else "")


@dataclass(frozen=True)
class End:
    """The job ends; this is why."""

    cause: Lost


@dataclass(frozen=True)
class Restart:
    """These roles are started anew; the others never stopped."""

    lost: tuple[Lost, ...]


@dataclass(frozen=True)
class GoOn:
    """The others go on without these."""

    lost: tuple[Lost, ...]


@dataclass(frozen=True)
class Reform:
    """All roles end, and start anew from the last checkpoint with `world` trainers."""

    cause: Lost
    world: int


Verdict = End | Restart | GoOn | Reform


def cause_of(lost: Sequence[Lost]) -> Lost:
    """Who failed first, as far as can be told. Survivors of a lost peer end too, with a code of their own."""

    def rank(one: Lost) -> int:
        if one.code is None:
            return 0
        return 1 if one.code < 0 else 3 if one.code == EXIT_REFORM else 2

    return min(lost, key=rank)


class Policy:
    """Counts restarts. `forgiving` jobs (async, ssp) can do without a trainer; the others take every step together."""

    def __init__(self, *, forgiving: bool, max_restarts: int | None = None, min_workers: int | None = None) -> None:
        self._forgiving = forgiving
        self._left = (FORGIVEN if forgiving else 0) if max_restarts is None else max_restarts
        self._may_reform = max_restarts is not None or min_workers is not None
        self._min_workers = min_workers
        self._evaluators_left = FORGIVEN
        self._data_left = FORGIVEN

    def _judge_data(self, lost: Sequence[Lost]) -> Verdict:
        """Data servers hold nothing that could be lost. Those whose host is gone cannot come back to their address."""
        gone = tuple(one for one in lost if one.code is None)
        if gone or self._data_left < len(lost):
            return GoOn(gone or tuple(lost))
        self._data_left -= len(lost)
        return Restart(tuple(lost))

    def _judge_evaluator(self, lost: Sequence[Lost]) -> Verdict:
        """Nobody waits for an evaluator before the end, and the run's files are its memory."""
        self._evaluators_left -= 1
        return Restart(tuple(lost)) if self._evaluators_left >= 0 else End(lost[0])

    @property
    def elastic(self) -> bool:
        """Whether survivors of a loss save where they stand, for the job formed anew or for the user's --resume."""
        return self._may_reform

    def judge(self, lost: Sequence[Lost], world: int, room: int | None) -> Verdict:
        """`world` trainers there were; the hosts that are left have `room` for so many (None: for any number)."""
        cause = cause_of(lost)
        if cause.code == EXIT_USER:  # a mistake in the settings or the data would only be repeated
            return End(cause)
        rest = [one for one in lost if one.kind not in ("data", "evaluator")]
        evaluators = [one for one in lost if one.kind == "evaluator"]
        if not rest:
            return self._judge_evaluator(evaluators) if evaluators else self._judge_data(lost)
        lost, cause = rest, cause_of(rest)
        # Survivors that left by themselves are not lost: they come back.
        gone = [one for one in lost if one.code != EXIT_REFORM]
        trainers = [one for one in gone if one.kind == "trainer"]
        if self._forgiving and len(trainers) == len(lost) and all(one.rank > 0 for one in trainers):
            if self._left >= len(trainers):
                self._left -= len(trainers)
                return Restart(tuple(trainers))
            if self._min_workers is not None and world - len(trainers) >= self._min_workers:
                return GoOn(tuple(trainers))
            return End(cause)
        if not self._may_reform:
            return End(cause)
        possible = world if room is None else min(world, room)
        if self._left > 0 and (possible == world or (self._min_workers is not None and possible >= self._min_workers)):
            self._left -= 1
            return Reform(cause, possible)
        remaining = min(possible, world - len(trainers))
        if self._left == 0 and self._min_workers is not None and remaining >= self._min_workers and trainers:
            return Reform(cause, remaining)
        return End(cause)
