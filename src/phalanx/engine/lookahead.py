"""Batches, each of which is announced a step before it is used: others can begin to work on it."""

from collections.abc import Generator
from contextlib import closing

from phalanx.data.base import Batch
from phalanx.engine.step import Announce


def announced(batches: Generator[Batch], announce: Announce | None, step: int, last_step: int) -> Generator[Batch]:
    """The same batches, for the steps from `step` to before `last_step`; unchanged where nobody is to be told."""
    return batches if announce is None else _announced(batches, announce, step, last_step)


def _announced(batches: Generator[Batch], announce: Announce, step: int, last_step: int) -> Generator[Batch]:
    with closing(batches):
        following = next(batches)
        announce(following, step)
        for now in range(step, last_step):
            batch = following
            if now + 1 < last_step:
                following = next(batches)
                announce(following, now + 1)
                batch.wait_s += following.wait_s  # this step has waited for both
                following.wait_s = 0.0
            yield batch
