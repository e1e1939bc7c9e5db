"""Time the algorithms of a convolution and its gradients, once for each shape, and cache the fastest on disk.

All runs on a machine use the cached choice, so that their results stay the same. Workers of a job use the choice of the
first worker.
"""

import time
from typing import Any

import torch
from torch import Tensor

from phalanx.cpu.convolution import ConvAlgorithms, Shape, algorithms_for, gradients, output
from phalanx.machine.timings import machine, path_of, read_timings, timings

WORTH_FLOPS = 2e8  # per micro-batch: a smaller convolution has nothing to gain
_GAIN = 0.9  # another algorithm must take at most this share of the time, so that noise does not decide
_TRIES = 3
_NAME = "convolutions"  # of the cached choices

_tuned: dict[str, float] = {}  # by key: seconds that this process spent on timing


def choose_algorithms(
    x: Tensor,
    weight: Tensor,
    shape: Shape,
    kept: ConvAlgorithms | None = None,
    *,
    native: bool = True,
    may_time: bool = True,
) -> ConvAlgorithms:
    """The algorithms for a convolution with this input: `kept` where possible, else the cached ones, else timed now."""
    possible = algorithms_for(weight, shape, native=native)
    if kept is not None and _possible(list(kept), possible):
        return kept
    size = _size(x, weight, shape)
    if not may_time or 2 * size.numel() * weight[0].numel() < WORTH_FLOPS:
        return _first(possible)
    key = _key(x, weight, shape) + ("" if native else ", no native code")
    if "pairs" in possible["weight"]:
        key += ", pairs"  # choices of before there were any are made anew
    chosen: Any = read_timings(_NAME).get(key)
    if not _possible(chosen, possible):  # new, or the file was edited, or the compiler was removed
        with torch.no_grad(), timings(_NAME) as cached:
            if not _possible(cached.get(key), possible):  # nor has another process timed it meanwhile
                begin = time.perf_counter()
                grad = torch.zeros(size, dtype=x.dtype).contiguous(memory_format=torch.channels_last)
                cached[key] = list(_fastest(possible, grad, x, weight, shape))
                _tuned[key] = time.perf_counter() - begin
            chosen = cached[key]
    return ConvAlgorithms(*chosen)


def report() -> str:
    """What this process has timed since the last report, for the log; empty for nothing."""
    if not _tuned:
        return ""
    timed, seconds = len(_tuned), sum(_tuned.values())
    _tuned.clear()
    return f"timed the algorithms of {timed} convolutions in {seconds:.1f} s; cached in {path_of(_NAME)}"


def _possible(chosen: object, algorithms: dict[str, list[str]]) -> bool:
    return (
        isinstance(chosen, list)
        and len(chosen) == len(algorithms)
        and all(map(list.__contains__, algorithms.values(), chosen))
    )


def _first(possible: dict[str, list[str]]) -> ConvAlgorithms:
    return ConvAlgorithms(**{which: ways[0] for which, ways in possible.items()})


def _size(x: Tensor, weight: Tensor, shape: Shape) -> torch.Size:
    """Shape of the output."""
    sides = zip(x.shape[2:], shape.padding, weight.shape[2:], shape.stride, strict=True)
    return torch.Size((len(x), len(weight), *((long + 2 * pad - kernel) // by + 1 for long, pad, kernel, by in sides)))


def _fastest(possible: dict[str, list[str]], grad: Tensor, x: Tensor, weight: Tensor, shape: Shape) -> ConvAlgorithms:
    """Output and each gradient are timed separately: none depends on the algorithm of the others."""
    best = _first(possible)
    for which, ways in possible.items():
        if len(ways) == 1:
            continue
        times = {way: _seconds(which, ConvAlgorithms(**{which: way}), grad, x, weight, shape) for way in ways}
        way = min(times, key=lambda each: times[each])
        if times[way] <= _GAIN * times[ways[0]]:
            best = best._replace(**{which: way})
    return best


def _seconds(which: str, algorithms: ConvAlgorithms, grad: Tensor, x: Tensor, weight: Tensor, shape: Shape) -> float:
    times = []
    for _ in range(1 + _TRIES):
        begin = time.perf_counter()
        if which == "output":
            output(x, weight, None, shape, algorithms)
        else:
            gradients(grad, x, weight, shape, algorithms, (which == "data", which == "weight"))
        times.append(time.perf_counter() - begin)
    return min(times[1:])


def _key(x: Tensor, weight: Tensor, shape: Shape) -> str:
    about = 2 ** (len(x).bit_length() - 1)  # batches of nearly the same size share a choice
    sizes = f"{about}+ of {'x'.join(map(str, x.shape[1:]))} by {'x'.join(map(str, weight.shape))}"
    how = f"stride {shape.stride[0]},{shape.stride[1]} padding {shape.padding[0]},{shape.padding[1]}"
    return f"{sizes} {how} {str(x.dtype).removeprefix('torch.')} on {machine()}"
