"""All workers of a job compute convolutions with the same algorithms: those that the first worker chose."""

import json
from collections.abc import Sequence
from typing import NamedTuple

from torch import nn

from phalanx import cpu
from phalanx.exchange.rendezvous import Rendezvous
from phalanx.machine.settings import Settings


class AlgorithmNotes(NamedTuple):
    """What there is to say about the choice: `notes` for the log, `warnings` for the screen too."""

    notes: list[str]
    warnings: list[str]


def agree_on_algorithms(
    model: nn.Module, settings: Settings, rendezvous: Rendezvous, rank: int, shapes: Sequence[tuple[int, int, int, int]]
) -> AlgorithmNotes:
    """Take the first worker's convolution algorithms. All workers call this.

    `shapes` are the micro-batches that training will see. A resumed run keeps the algorithms of its checkpoint.
    """
    if settings.fast_path == "off":
        return AlgorithmNotes([], [])
    note = cpu.choose(model, shapes, settings) if rank == 0 else ""
    mine = json.dumps(cpu.state(model)) if rank == 0 else ""
    chosen = json.loads(rendezvous.gather("convolutions", mine)[0])
    warning = cpu.agree(model, chosen)
    return AlgorithmNotes([note] if note else [], [warning] if warning and rank == 0 else [])
