"""What a profiler has recorded of one worker, as plain data: spans on threads, and the steps that they belong to."""

from dataclasses import dataclass
from typing import NamedTuple

# How scopes of ours begin, so that they differ from names of operators.
PART, LAYER, NATIVE = "phalanx:", "layer:", "native:"
STEP = f"{PART}step"
EVALUATED = "autograd::engine::evaluate_function: "  # how the autograd engine's call of a node begins


class Span(NamedTuple):
    """A call: of an operator, of a node of the autograd graph, or a scope. Nanoseconds of this process's clock."""

    name: str
    start: int
    end: int
    thread: int
    sequence: int = -1  # the node of the autograd graph that it makes or evaluates
    backward: bool = False  # of a node that is evaluated
    kernels_ns: int = 0  # what a GPU computed for this very call
    on_gpu: bool = False  # a kernel itself, on a row of its own


class StepTimes(NamedTuple):
    """One step, from the end of the step before to its own end. Seconds; `began` is of this process's clock."""

    number: int
    began: float
    wall: float
    data: float
    exchange: float  # not hidden by computing
    inside_backward: float  # the part of `exchange` that was spent while backward ran
    update: float
    bytes_sent: int = 0


@dataclass(frozen=True)
class Recording:
    """All that one worker has recorded. Spans are in the order of their starts."""

    steps: list[StepTimes]
    spans: list[Span]
    thread: int  # that trains
    unprofiled_s: float | None  # of a step before the profiler was on, where there was one
    on_gpu: bool = False
