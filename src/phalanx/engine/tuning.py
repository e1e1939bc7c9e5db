"""Which forms of a convolution's gradients are fastest on this machine: timed once for each shape, and kept on disk.

All workers of a machine, and all runs on it, take the same ones from there, so that their results stay the same.
"""

import contextlib
import fcntl
import json
import time
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F

from phalanx.cores import cpu_name
from phalanx.engine.convolution import PLAIN, Forms, Shape, forms_for, gradients
from phalanx.native.build import cache_folder

WORTH_FLOPS = 2e8  # of a micro-batch: below, a step is over before anything could be gained
_GAIN = 0.9  # another form must take at most so much of the time, or noise would choose
_TRIES = 3

_tuned: dict[str, float] = {}  # by key: seconds that this process spent on it


def choose_forms(x: Tensor, weight: Tensor, shape: Shape) -> Forms:
    """For a convolution with such an input. The first process that asks on this machine finds out."""
    with torch.no_grad():
        y = F.conv2d(x, weight, None, shape.stride, shape.padding)
        if 2 * y.numel() * weight[0].numel() < WORTH_FLOPS:
            return PLAIN
        key = _key(x, weight, shape)
        with _kept() as kept:
            if kept.get(key) not in [[*forms] for forms in forms_for(weight, shape)]:  # new, or the file was changed
                begin = time.perf_counter()
                kept[key] = list(_fastest(y, x, weight, shape))
                _tuned[key] = time.perf_counter() - begin
            return Forms(*kept[key])


def told() -> str | None:
    """What to tell the user after the first step, if anything was tried out in this process."""
    if not _tuned:
        return None
    text = f"tried out {len(_tuned)} convolutions in {sum(_tuned.values()):.1f} s; the choice is kept in {_path()}"
    _tuned.clear()
    return text


def _fastest(grad: Tensor, x: Tensor, weight: Tensor, shape: Shape) -> Forms:
    """Each gradient by itself, since one does not depend on how the other is made."""
    forms = forms_for(weight, shape)
    best = {"data": "convolution", "weight": "convolution"}
    for which, needed in (("data", (True, False)), ("weight", (False, True))):
        ways = {str(getattr(form, which)): Forms(**{which: getattr(form, which)}) for form in forms}
        times = {way: _seconds(grad, x, weight, shape, form, needed) for way, form in ways.items()}
        way = min(times, key=lambda each: times[each])
        if times[way] <= _GAIN * times["convolution"]:
            best[which] = way
    return Forms(**best)


def _seconds(grad: Tensor, x: Tensor, weight: Tensor, shape: Shape, forms: Forms, needed: tuple[bool, bool]) -> float:
    times = []
    for _ in range(1 + _TRIES):
        begin = time.perf_counter()
        gradients(grad, x, weight, shape, forms, needed)
        times.append(time.perf_counter() - begin)
    return min(times[1:])


def _key(x: Tensor, weight: Tensor, shape: Shape) -> str:
    about = 2 ** (len(x).bit_length() - 1)  # batches of nearly the same size need not be told apart
    sizes = f"{about}+ of {'x'.join(map(str, x.shape[1:]))} by {'x'.join(map(str, weight.shape))}"
    how = f"stride {shape.stride[0]},{shape.stride[1]} padding {shape.padding[0]},{shape.padding[1]}"
    where = f"{cpu_name()}, {torch.get_num_threads()} threads, torch {torch.__version__}"
    return f"{sizes} {how} {str(x.dtype).removeprefix('torch.')} on {where}"


@contextlib.contextmanager
def _kept() -> Iterator[dict[str, list[str]]]:
    """What is known on this machine; what is added is kept. One process at a time: the others wait, and then know."""
    try:
        _path().parent.mkdir(parents=True, exist_ok=True)
        lock = _path().with_suffix(".lock").open("w")
    except (OSError, RuntimeError):  # no folder to write to, or no home: everybody for himself
        yield {}
        return
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        kept: dict[str, list[str]] = {}
        with contextlib.suppress(OSError, ValueError, TypeError):
            kept = dict(json.loads(_path().read_text(encoding="utf-8")))
        before = dict(kept)
        yield kept
        if kept != before:
            with contextlib.suppress(OSError):  # a full disk costs the time again, and nothing else
                aside = _path().with_suffix(".new")
                aside.write_text(json.dumps(kept, indent=1), encoding="utf-8")
                aside.replace(_path())


def _path() -> Path:
    return cache_folder().with_name("convolutions.json")
