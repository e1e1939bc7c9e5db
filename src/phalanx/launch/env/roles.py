"""Who am I? One table of variables per launcher: our own, our pods', torchrun, Paddle's, DMLC's, OpenMPI, Slurm, MPICH.

Launchers stand inside one another: Slurm starts mpirun, which starts a script that exports RANK. The innermost knows
best, so it is asked first. Where two that ought to agree do not, the process refuses to guess.
"""

import os
from dataclasses import replace
from pathlib import Path

from phalanx.config.role import Environment, Role, RoleKind
from phalanx.errors import UserError
from phalanx.launch.env import dmlc, paddle
from phalanx.launch.env import ranks as counting
from phalanx.launch.env.variables import bad_variable, number

OURS = counting.Counting("phalanx", "PHALANX_RANK", "PHALANX_WORLD", "PHALANX_LOCAL_RANK", "PHALANX_LOCAL_WORLD")
# Our manifests leave the rank to Kubernetes, which numbers the pods of an indexed Job.
KUBERNETES = counting.Counting("kubernetes", "JOB_COMPLETION_INDEX", "PHALANX_WORLD", "PHALANX_LOCAL_RANK")
# One of them is in every process that such a launcher started. (Slurm's are in its shells too, see `is_foreign`.)
_FOREIGN = (
    *(launcher.rank for launcher in (counting.TORCHRUN, counting.OPENMPI, counting.PMI)),
    *("PADDLE_TRAINING_ROLE", "PADDLE_TRAINER_ID", "DMLC_ROLE"),
)
_KINDS: dict[str, RoleKind] = {"trainer": "trainer", "server": "server", "data": "data", "evaluator": "evaluator"}


def role_from_env(environment: Environment = os.environ) -> Role | None:
    """The role that a launcher gave this process, or None where nobody launched it."""
    if OURS.rank in environment:
        return _ours(environment, OURS)
    if KUBERNETES.rank in environment and KUBERNETES.world in environment:
        return _ours(environment, KUBERNETES)
    told = [read(environment) for read in (counting.torchrun, paddle.role, dmlc.role)]
    counted = [read(environment) for read in (counting.openmpi, counting.slurm, counting.pmi)]
    inner, outer = [role for role in told if role], [role for role in counted if role]
    for other in inner[1:]:
        _refuse_disagreement(inner[0], other)
    if inner and inner[0].launcher == counting.TORCHRUN.launcher and "TORCHELASTIC_RUN_ID" not in environment:
        for role in outer:
            _refuse_miscount(inner[0], role)
    return next(iter(inner + outer), None)


def is_foreign(environment: Environment = os.environ) -> bool:
    """Whether a launcher other than ours has this process's output, even where it looks like a terminal.

    OpenMPI gives its ranks a pseudo-terminal; torchrun and scripts of Paddle or MXNet put all of theirs on one.
    """
    at_a_terminal = "SLURM_PTY_PORT" in environment  # srun --pty hands a person's own terminal through
    return any(name in environment for name in _FOREIGN) or (counting.in_step(environment) and not at_a_terminal)


def _ours(environment: Environment, numbers: counting.Counting) -> Role:
    kind = environment.get("PHALANX_ROLE", "trainer")
    if kind not in _KINDS:
        raise bad_variable("PHALANX_ROLE", kind, f"is none of {', '.join(_KINDS)}", numbers.launcher)
    run = environment.get("PHALANX_RUN")
    return replace(
        numbers.role(environment, counting.master_given(environment)),
        kind=_KINDS[kind],
        servers=tuple(filter(None, environment.get("PHALANX_SERVERS", "").split(","))),
        data=tuple(filter(None, environment.get("PHALANX_DATA", "").split(","))),
        beside=number("PHALANX_BESIDE", environment, numbers.launcher, 0),
        run=Path(run) if run else None,
    )


def _refuse_disagreement(one: Role, other: Role) -> None:
    if (one.kind, one.rank, one.world) != (other.kind, other.rank, other.world):
        raise UserError(
            f"this process is told two things: {_said(one)}, and {_said(other)}",
            why="both kinds of variables are set",
            remedy=f"unset those of {one.launcher} or those of {other.launcher}",
        )


def _refuse_miscount(exported: Role, outer: Role) -> None:
    """RANK that a script exports: as many processes as were started, or more where each starts several."""
    if exported.world < outer.world or (exported.world == outer.world and exported.rank != outer.rank):
        raise UserError(
            f"RANK={exported.rank} and WORLD_SIZE={exported.world} contradict {_said(outer)}",
            why="they were exported by hand, and torchrun did not start this process",
            remedy=f"leave them out: phalanx reads {outer.launcher}'s own variables",
        )


def _said(role: Role) -> str:
    return f"{role.launcher} says {role.kind} {role.rank} of {role.world}"
