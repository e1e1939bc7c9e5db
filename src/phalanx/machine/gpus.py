"""Which GPU a worker uses: pure functions of the GPUs present, which can be tested without one. What it can do."""

import os
import shutil
from collections.abc import Sequence
from importlib.util import find_spec

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


def why_no_compile() -> str:
    """Why torch.compile cannot make kernels for this process's GPU; empty if it can."""
    if find_spec("triton") is None:
        return "triton is not installed"
    if not any(shutil.which(name) for name in (os.environ.get("CC"), "cc", "gcc", "clang") if name):
        return "triton needs a C compiler"
    import torch

    major, minor = torch.cuda.get_device_capability()
    return "" if major >= 7 else f"triton needs compute capability 7.0, the GPU has {major}.{minor}"


def own_gpu(local_rank: int, local_world: int, count: int) -> int:
    """The GPU of a worker where none is named: one of `count` for each worker of the host.

    A process that sees a single one has its own: Slurm, Ray and Kubernetes hide the others.
    """
    if count == 1 or local_rank < count:
        return 0 if count == 1 else local_rank
    raise UserError(
        f"{local_world} workers run on this machine, which has {count} GPUs",
        why="a worker computes on a GPU of its own",
        remedy=f"--workers {count}, or a smaller number of workers for each host",
    )
