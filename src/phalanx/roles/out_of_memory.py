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
        said = " ".join(str(error).split())
        raise OutOfMemory(
            f"{role.name} on {here()} is out of memory",
            why=f"{type(error).__name__}{f': {said[:300]}' if said else ''}; {describe_limits()}",
            remedy=_remedy(config),
        ) from error


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that an allocation failed."""
    if isinstance(error, UserError):
        return False
    if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM):
        return True
    return isinstance(error, RuntimeError) and any(words in str(error).lower() for words in _SAID)


def _remedy(config: RunConfig) -> str:
    samples = samples_per_step(config) // config.micro_batches
    smaller = f"optim.accumulate={2 * config.optim.accumulate}"
    if config.train.global_batch_size is None:
        smaller = f"train.batch_size={max(1, samples // 2)} {smaller}"
    return (
        f"smaller micro-batches: {smaller} has {max(1, samples // 2)} samples in each instead of {samples}, and a step "
        "keeps its samples; or give the process more memory"
    )
