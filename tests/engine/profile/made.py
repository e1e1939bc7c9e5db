"""Recordings made by hand: two steps of a model with a convolution, as the profiler would see them."""

from typing import Any

from phalanx.engine.profile.clocks import ClockOffset
from phalanx.engine.profile.merge import merged
from phalanx.engine.profile.part import part_of
from phalanx.engine.profile.spans import EVALUATED, LAYER, NATIVE, PART, Recording, Span, StepTimes

MS = 1_000_000
SETTINGS: dict[str, Any] = {
    **{"method": "local", "workers": 1, "workers_here": 1, "compress": "none", "accumulate": 1, "batch_size": 16},
    **{"precision": "bf16", "bf16": "AMX", "channels_last": True, "fast_path": "native", "compile": False},
    **{"on_gpu": False, "threads": 2, "cores": 2, "data": "", "data_servers": 0, "log_every": 50},
}


def recording(
    *, began_s: float = 100.0, extra_ms: float = 0.0, exchange_ms: float = 0.0, gpu: bool = False
) -> Recording:
    """Steps of 100 ms, of which backward takes `extra_ms` longer and then waits `exchange_ms` for other workers."""
    wall = 100.0 + extra_ms + exchange_ms
    steps, spans = [], []
    for number in range(2):
        began = began_s + number * wall / 1e3
        inside = exchange_ms / 1e3
        steps.append(StepTimes(9 + number, began, wall / 1e3, 0.01, inside, inside, 0.01, 1000))
        spans += step_spans(round(began * 1e9), 7 * number, extra_ms, exchange_ms, gpu)
    spans.sort(key=lambda one: (one.start, -one.end))
    return Recording(steps, spans, thread=1, unprofiled_s=0.09, on_gpu=gpu)


def step_spans(base: int, first: int, extra_ms: float, exchange_ms: float, gpu: bool) -> list[Span]:
    def span(
        name: str, start: float, end: float, sequence: int = -1, *, backward: bool = False, gpu_ms: float = 0
    ) -> Span:
        times = base + round(start * MS), base + round(end * MS)
        return Span(name, *times, 1, sequence, backward, round(gpu_ms * MS) if gpu else 0)

    end = 80 + extra_ms
    return [
        span(f"{PART}data", 0, 10),
        span(f"{PART}forward", 10, 40),
        span(f"{LAYER}", 11, 36),
        span(f"{LAYER}stage", 11, 31),
        span(f"{LAYER}stage.conv", 11, 26),
        span("_Convolve", 11, 26, first),
        span(f"{NATIVE}winograd_convolve", 12, 22, gpu_ms=4),
        span("aten::copy_", 22, 25, gpu_ms=1),
        span(f"{LAYER}fc", 31, 36),
        span("aten::linear", 31, 36, first + 1),
        span("aten::addmm", 32, 36, first + 2, gpu_ms=2),
        span("aten::cross_entropy_loss", 36, 39, first + 3),
        span(f"{PART}backward", 40, end + exchange_ms),
        span(f"{EVALUATED}AddmmBackward0", 41, 51, first + 2, backward=True),
        span("AddmmBackward0", 41, 51, first + 2, backward=True),
        span("aten::mm", 42, 50, gpu_ms=3),
        span(f"{EVALUATED}_ConvolveBackward", 51, end - 1, first, backward=True),
        span(f"{NATIVE}winograd_weight_gradient", 52, end - 2, gpu_ms=6),
        span(f"{PART}update", end + exchange_ms, end + exchange_ms + 10),
        span("aten::_fused_sgd_", end + exchange_ms + 1, end + exchange_ms + 9, gpu_ms=1),
    ]


TYPES = {"": "Net", "stage": "Sequential", "stage.conv": "Conv2d", "fc": "Linear"}


def parts(*recordings: Recording) -> list[dict[str, Any]]:
    return [part_of(each, TYPES, rank) for rank, each in enumerate(recordings)]


def profile(*recordings: Recording, **settings: Any) -> dict[str, Any]:
    """The content of profile.json, without version and advice."""
    workers = len(recordings)
    about = {
        **{"made_by": "test", "command": "phalanx profile", "model": "net", "first_step": 9, "steps": 2},
        **{"samples_per_step": 16 * workers, "images_per_s": 160.0, "decisions": {}},
        "settings": {**SETTINGS, "workers": workers, "workers_here": workers, "cores": 2 * workers, **settings},
    }
    clocks = [ClockOffset(0.0, 0.0)] * workers
    return {**merged(about, parts(*recordings), clocks, lockstep=True), "advice": []}
