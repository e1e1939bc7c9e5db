"""Batches, each of which is used for several steps in a row."""

from collections.abc import Generator
from contextlib import closing
from dataclasses import replace

from phalanx.data.base import Batch


def replayed(batches: Generator[Batch], times: int, step: int) -> Generator[Batch]:
    """The same batches, each `times` times. The first has its remaining times, if `step` is between two replays."""
    return batches if times == 1 else _replayed(batches, times, step % times)


def _replayed(batches: Generator[Batch], times: int, first: int) -> Generator[Batch]:
    with closing(batches):
        for batch in batches:
            for replay in range(first, times):
                again, new = replay + 1 < times, replay == first
                # It was waited for once, and its bad images are told once.
                wait_s, bad = (batch.wait_s, batch.bad) if new else (0.0, [])
                yield replace(batch, again=again, last=batch.last and not again, wait_s=wait_s, bad=bad)
            first = 0
