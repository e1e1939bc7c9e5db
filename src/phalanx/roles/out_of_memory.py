"""An allocation that failed, as an error that names the process, its limits, and a smaller micro-batch."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from phalanx.config.batch import samples_per_step
from phalanx.config.role import Role
from phalanx.config.schema import RunConfig
from phalanx.errors import UserError
from phalanx.machine.memory import describe_limits
from phalanx.net.waiting import here

# What torch and its libraries say; they raise plain RuntimeErrors.
_SAID = ("can't allocate memory", "not enough memory", "out of memory", "std::bad_alloc", "cannot allocate memory")
_SAID_BY_CUDA = ("CUDA out of memory", "CUDA error: out of memory", "_ALLOC_FAILED")  # cuBLAS's and cuDNN's status


class OutOfMemory(UserError):
    """This process has no memory left."""


@contextmanager
def naming_out_of_memory(role: Role, config: RunConfig) -> Iterator[None]:
    """Turn a failed allocation into an OutOfMemory error."""
    try:
        yield
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        on_gpu = is_on_gpu(error)  # torch's message has the GPU's figures; the host's say nothing of it
        what, limits = ("has no GPU memory left", []) if on_gpu else ("is out of memory", [describe_limits()])
        said = " ".join(str(error).split())
        raise OutOfMemory(
            f"{role.name} on {here()} {what}",
            why="; ".join([f"{type(error).__name__}{f': {said[:300]}' if said else ''}", *limits]),
            remedy=_remedy(config, on_gpu=on_gpu),
        ) from error


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that an allocation failed."""
    if isinstance(error, UserError):
        return False
    if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM):
        return True
    said = str(error)
    return isinstance(error, RuntimeError) and (is_on_gpu(error) or any(words in said.lower() for words in _SAID))


def is_on_gpu(error: BaseException) -> bool:
    """Whether it was a GPU's memory. Libraries have words of their own for it."""
    return type(error).__name__ == "OutOfMemoryError" or any(words in str(error) for words in _SAID_BY_CUDA)


def _remedy(config: RunConfig, *, on_gpu: bool) -> str:
    samples = samples_per_step(config) // config.micro_batches
    smaller = f"optim.accumulate={2 * config.optim.accumulate}"
    if config.train.global_batch_size is None:
        smaller = f"train.batch_size={max(1, samples // 2)} {smaller}"
    more = (
        "or machine.precision=bf16, or other programs off this GPU (nvidia-smi shows them); if much is `reserved but "
        "unallocated`, set PYTORCH_ALLOC_CONF=expandable_segments:True"
        if on_gpu
        else "or give the process more memory"
    )
    return (
        f"smaller micro-batches: {smaller} has {max(1, samples // 2)} samples in each instead of {samples}, and a step "
        f"keeps its samples; train.fit_memory=true chooses by itself; {more}"
    )
