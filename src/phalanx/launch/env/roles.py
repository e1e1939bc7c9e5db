"""This process's role, from environment variables: ours, Kubernetes, torchrun, Paddle, DMLC, OpenMPI, Slurm, MPICH.

Launchers are nested: Slurm starts mpirun, which starts a script that exports RANK. The innermost one counts. Launchers
that contradict each other are an error.
"""

import os
from dataclasses import replace
from pathlib import Path

from phalanx.config.role import Environment, Role, RoleKind
from phalanx.errors import UserError
from phalanx.launch.env import dmlc, paddle, ranks
from phalanx.launch.env.variables import bad_variable, number

OURS = ranks.RankVariables("phalanx", "PHALANX_RANK", "PHALANX_WORLD", "PHALANX_LOCAL_RANK", "PHALANX_LOCAL_WORLD")
# Our manifests leave the rank to Kubernetes, which numbers the pods of an indexed Job: trainers first, then servers.
KUBERNETES = ranks.RankVariables("kubernetes", "JOB_COMPLETION_INDEX", "PHALANX_WORLD", "PHALANX_LOCAL_RANK")
ELASTIC = "PHALANX_ELASTIC"  # of our manifests: survivors of a lost pod save
# Every process of such a launcher has one of these. (Slurm's are in its shells too, see `is_foreign`.)
_FOREIGN = (
    *(launcher.rank for launcher in (ranks.TORCHRUN, ranks.OPENMPI, ranks.PMI)),
    *("PADDLE_TRAINING_ROLE", "PADDLE_TRAINER_ID", "DMLC_ROLE"),
)
_KINDS: dict[str, RoleKind] = {
    **{"trainer": "trainer", "server": "server", "data": "data", "teacher": "teacher", "evaluator": "evaluator"}
}


def role_from_env(environment: Environment = os.environ) -> Role | None:
    """The role that a launcher gave this process, or None without a launcher."""
    if OURS.rank in environment:
        return _ours(environment, OURS)
    if KUBERNETES.rank in environment and KUBERNETES.world in environment:
        return _pod(environment)
    declared = [read(environment) for read in (ranks.torchrun, paddle.role, dmlc.role)]
    counted = [read(environment) for read in (ranks.openmpi, ranks.slurm, ranks.pmi)]
    inner, outer = [role for role in declared if role], [role for role in counted if role]
    for other in inner[1:]:
        _refuse_disagreement(inner[0], other)
    if inner and inner[0].launcher == ranks.TORCHRUN.launcher and "TORCHELASTIC_RUN_ID" not in environment:
        for role in outer:
            _refuse_miscount(inner[0], role)
    return next(iter(inner + outer), None)


def is_foreign(environment: Environment = os.environ) -> bool:
    """Whether another launcher reads this process's output, even if that looks like a terminal.

    OpenMPI gives its ranks a pseudo-terminal; with torchrun and scripts of Paddle or MXNet all ranks share one.
    """
    at_a_terminal = "SLURM_PTY_PORT" in environment  # srun --pty gives the task the user's terminal
    return any(name in environment for name in _FOREIGN) or (ranks.in_step(environment) and not at_a_terminal)


def _ours(environment: Environment, numbers: ranks.RankVariables) -> Role:
    kind = environment.get("PHALANX_ROLE", "trainer")
    if kind not in _KINDS:
        raise bad_variable("PHALANX_ROLE", kind, f"is none of {', '.join(_KINDS)}", numbers.launcher)
    run = environment.get("PHALANX_RUN")
    return replace(
        numbers.role(environment, ranks.master_from_env(environment)),
        kind=_KINDS[kind],
        servers=tuple(filter(None, environment.get("PHALANX_SERVERS", "").split(","))),
        data=tuple(filter(None, environment.get("PHALANX_DATA", "").split(","))),
        teachers=tuple(filter(None, environment.get("PHALANX_TEACHERS", "").split(","))),
        local_trainers=number("PHALANX_LOCAL_TRAINERS", environment, numbers.launcher, 0),
        run=Path(run) if run else None,
    )


def _pod(environment: Environment) -> Role:
    """The role of a pod. Indices after those of the trainers are servers."""
    index = number(KUBERNETES.rank, environment, KUBERNETES.launcher)
    trainers = number(KUBERNETES.world, environment, KUBERNETES.launcher)
    servers = len(list(filter(None, environment.get("PHALANX_SERVERS", "").split(","))))
    if index >= trainers:
        own = {KUBERNETES.rank: str(index - trainers), KUBERNETES.world: str(servers), "PHALANX_ROLE": "server"}
        environment = {**environment, **own}
    return replace(_ours(environment, KUBERNETES), elastic=ELASTIC in environment)


def _refuse_disagreement(one: Role, other: Role) -> None:
    if (one.kind, one.rank, one.world) != (other.kind, other.rank, other.world):
        raise UserError(
            f"two launchers contradict each other: {_summary(one)}, and {_summary(other)}",
            why="both kinds of variables are set",
            remedy=f"unset those of {one.launcher} or those of {other.launcher}",
        )


def _refuse_miscount(exported: Role, outer: Role) -> None:
    """Refuse an exported RANK that does not fit the launcher's number of processes."""
    if exported.world < outer.world or (exported.world == outer.world and exported.rank != outer.rank):
        raise UserError(
            f"RANK={exported.rank} and WORLD_SIZE={exported.world} contradict {_summary(outer)}",
            why="a script exports them, and torchrun did not start this process",
            remedy=f"leave them out: phalanx reads {outer.launcher}'s own variables",
        )


def _summary(role: Role) -> str:
    return f"{role.launcher} says {role.kind} {role.rank} of {role.world}"
