"""Which GPU a worker uses. A pure function of the GPUs present, so that it can be tested without one."""

from collections.abc import Sequence

from phalanx.errors import UserError


def gpu_of(gpus: Sequence[int], local_rank: int, local_world: int, present: Sequence[str], absent_why: str) -> int:
    """The GPU of the worker with `local_rank` on its host: one worker per listed GPU.

    `present` are the names of this host's GPUs. Where there is none, `absent_why` is the reason.
    """
    listed = ",".join(map(str, gpus))
    if not present:
        raise UserError(
            f"there is no GPU for --gpus {listed}",
            why=absent_why,
            remedy="leave it out to train on the CPU (--workers for several processes); `phalanx doctor` shows more",
        )
    missing = [gpu for gpu in gpus if gpu >= len(present)]
    if missing:
        there = ", ".join(f"{number} ({name})" for number, name in enumerate(present))
        raise UserError(
            f"there is no GPU {missing[0]}", why=f"--gpus {listed}; this machine has {there}", remedy="list only those"
        )
    if local_world != len(gpus):
        raise UserError(
            f"{local_world} workers run on this machine, but {len(gpus)} GPUs are listed",
            why=f"--gpus {listed} means one worker for each",
            remedy="leave --workers out, or list as many GPUs as each machine has workers",
        )
    return gpus[local_rank]
