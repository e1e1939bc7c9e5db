"""One worker's part of a profile, as plain data that can be sent: times of steps, kinds, layers, tree, spans."""

import bisect
import os
import platform
import resource
from collections.abc import Mapping
from typing import Any

import torch

from phalanx.engine.profile.spans import EVALUATED, LAYER, NATIVE, PART, Recording
from phalanx.engine.profile.tree import MODEL, Taken, ms

PARTS = ("data", "inputs", "forward", "backward", "exchange", "update", "other")  # they add up to a step
_MOST_SPANS = 300_000  # of a worker in the trace; later steps are left out there

Data = dict[str, Any]


def part_of(recording: Recording, types: Mapping[str, str], rank: int) -> Data:
    """What this worker has to say. `types` are the classes of the model's modules, by path."""
    taken, count = Taken(recording), len(recording.steps)
    steps = step_parts(recording)
    return {
        "rank": rank,
        "host": platform.node(),
        "pid": os.getpid(),
        "steps": steps,
        "ms": _mean([step["ms"] for step in steps]),
        "parts": {name: _mean([step[name] for step in steps]) for name in PARTS},
        "unprofiled_ms": None if recording.unprofiled_s is None else round(recording.unprofiled_s * 1e3, 3),
        "bytes_sent": sum(step.bytes_sent for step in recording.steps) // count,
        "kinds": [
            {"kind": name, "ms": ms(total.nanoseconds, count), "calls": round(total.calls / count, 3)}
            for name, total in sorted(taken.kinds.items(), key=lambda one: -one[1].nanoseconds)
            if total.nanoseconds
        ],
        "layers": [
            {
                "path": path,
                "type": types.get(path, ""),
                "calls": round(total.calls / count, 3),
                "forward_ms": ms(total.forward, count),
                "backward_ms": ms(total.backward, count),
            }
            for path, total in taken.layers.items()
        ],
        "memory": memory(recording.on_gpu),
        "tree": taken.tree(),
        "spans": packed(recording),
    }


def step_parts(recording: Recording) -> list[Data]:
    """Each step's milliseconds by part. Scopes are cut into steps by where they start."""
    begun = [round(step.began * 1e9) for step in recording.steps]
    scopes = [dict.fromkeys(("inputs", "forward", "backward"), 0) for _ in begun]
    for span in recording.spans:
        name = span.name.removeprefix(PART)
        number = bisect.bisect_right(begun, span.start) - 1
        if span.name.startswith(PART) and name in scopes[0] and number >= 0 and not span.on_gpu:
            scopes[number][name] += span.end - span.start
    found = []
    for step, scope in zip(recording.steps, scopes, strict=True):
        known = {
            "data": step.data * 1e3,
            "inputs": scope["inputs"] / 1e6,
            "forward": scope["forward"] / 1e6,
            "backward": max(0.0, scope["backward"] / 1e6 - step.inside_backward * 1e3),
            "exchange": step.exchange * 1e3,
            "update": step.update * 1e3,
        }
        rest = max(0.0, step.wall * 1e3 - sum(known.values()))
        numbers = {name: round(value, 6) for name, value in {**known, "other": rest}.items()}
        found.append({"step": step.number, "ms": round(step.wall * 1e3, 6), **numbers})
    return found


def memory(on_gpu: bool) -> dict[str, int]:
    """The most that this process has used since it began, in MiB."""
    used = {"process_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024}
    if on_gpu:
        used["gpu_mib"] = torch.cuda.max_memory_allocated() >> 20
    return used


def packed(recording: Recording) -> Data:
    """The spans of whole steps: a list of names, and rows of (name, start, length, thread, on a GPU). Nanoseconds."""
    base = round(recording.steps[0].began * 1e9)
    names: dict[str, int] = {}
    rows: list[list[int]] = []
    for number, step in enumerate(recording.steps):
        begin, end = round(step.began * 1e9), round((step.began + step.wall) * 1e9)
        inside = [span for span in recording.spans if begin <= span.start and span.end <= end]
        if number and len(rows) + len(inside) > _MOST_SPANS:
            break
        named = names.setdefault(f"step {step.number}", len(names))
        rows.append([named, begin - base, end - begin, recording.thread, 0])
        for span in inside:
            named = names.setdefault(_shown(span.name), len(names))
            rows.append([named, span.start - base, span.end - span.start, span.thread, int(span.on_gpu)])
    return {"base_ns": base, "thread": recording.thread, "names": list(names), "rows": rows}


def _shown(name: str) -> str:
    if name.startswith(LAYER):
        return name.removeprefix(LAYER) or MODEL
    return name.removeprefix(PART).removeprefix(NATIVE).removeprefix(EVALUATED)


def _mean(values: list[float]) -> float:
    return round(sum(values) / len(values), 6)
