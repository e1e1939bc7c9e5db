"""torch's profiler, with the parts of a step and the layers of a model as named scopes.

Nothing of the computation changes: layers are seen by global hooks around forward, which belong to no module (a batch
norm with a hook of its own would not be fused). Backward needs no hooks: autograd numbers the nodes of its graph, and
the profiler knows the number of each, in forward and in backward.
"""

import os
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch import nn
from torch.nn.modules import module as hooks
from torch.profiler import ProfilerActivity, profile, record_function

from phalanx.engine.profile.spans import LAYER, NATIVE, PART, STEP, Recording, Span, StepTimes
from phalanx.scopes import record_with

_PARTS = ("data", "inputs", "forward", "backward", "synchronise", "update")
_LOG_LEVEL = "KINETO_LOG_LEVEL"  # the profiler's library logs each start and stop to standard error


class StepRecorder:
    """Records spans between `start` and `stop`; `next_step` tells it where steps begin. It is the scopes' Recorder."""

    def __init__(self, model: nn.Module, device: torch.device) -> None:
        compiled = getattr(model, "_compiled_call_impl", None) is not None  # a hook would have it compiled again
        self._names = {} if compiled else {id(module): name for name, module in model.named_modules()}
        self.device = device
        self._open = threading.local()
        self._hooks: list[Any] = []
        self._profiler: profile | None = None
        self._step: record_function | None = None
        self._began: list[float] = []  # when each recorded step began, by this process's clock

    def start(self) -> float:
        """Begin to record, with a step that begins now. Returns when that is."""
        os.environ.setdefault(_LOG_LEVEL, "99")
        activities = [ProfilerActivity.CPU]
        if self.device.type == "cuda":
            activities.append(ProfilerActivity.CUDA)
        self._profiler = profile(activities=activities, acc_events=True)
        self._profiler.start()
        if self._names:
            before = hooks.register_module_forward_pre_hook(self._enter)
            after = hooks.register_module_forward_hook(self._leave, always_call=True)
            self._hooks = [before, after]
        record_with(self)
        return self._begin_step()

    def next_step(self) -> float:
        """A step ends, and the next one begins. Returns when that is."""
        self._end_step()
        return self._begin_step()

    def stop(self) -> list[Span]:
        """End the step and the recording."""
        self.close()
        assert self._profiler is not None
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        self._profiler.stop()
        return self._spans()

    def close(self) -> None:
        """Remove all that listens, also after a step that failed."""
        self._end_step()
        record_with(None)
        for hook in self._hooks:
            hook.remove()
        self._hooks = []

    def scope(self, name: str) -> AbstractContextManager[Any]:
        return record_function(f"{PART if name in _PARTS else NATIVE}{name}")

    @contextmanager
    def layer(self, module: object) -> Iterator[None]:
        name = self._names.get(id(module))
        if name is None:
            yield
        else:
            with record_function(f"{LAYER}{name}"):
                yield

    def _enter(self, module: nn.Module, arguments: object) -> None:
        name = self._names.get(id(module))
        if name is not None:
            entered = record_function(f"{LAYER}{name}")
            entered.__enter__()
            self._stack().append(entered)

    def _leave(self, module: nn.Module, arguments: object, output: object) -> None:
        if id(module) in self._names and self._stack():
            self._stack().pop().__exit__(None, None, None)

    def _stack(self) -> list[record_function]:
        """The layers that this thread is in: recomputed activations run in threads of autograd."""
        if not hasattr(self._open, "layers"):
            self._open.layers = []
        found: list[record_function] = self._open.layers
        return found

    def _begin_step(self) -> float:
        self._began.append(time.perf_counter())
        self._step = record_function(STEP)
        self._step.__enter__()
        return self._began[-1]

    def _end_step(self) -> None:
        if self._step is not None:
            self._step.__exit__(None, None, None)
            self._step = None

    def _spans(self) -> list[Span]:
        """What was recorded, by this process's clock: the profiler has one of its own."""
        assert self._profiler is not None
        events = [event for event in (self._profiler.events() or []) if not event.is_async and not _is_echo(event)]
        steps = [event.time_range.start for event in events if event.name == STEP]
        shift = statistics.median(
            round(began * 1e9) - round(start * 1e3) for began, start in zip(self._began, steps, strict=False)
        )
        return sorted((span_of(event, round(shift)) for event in events), key=lambda one: (one.start, -one.end))


def _is_echo(event: Any) -> bool:
    """Whether it is a scope of ours, repeated on the row of the GPU."""
    return _on_gpu(event) and str(event.name).startswith((PART, LAYER, NATIVE))


def _on_gpu(event: Any) -> bool:
    return str(event.device_type.name) != "CPU"


def span_of(event: Any, shift: int) -> Span:
    """A span of one of torch's FunctionEvents."""
    on_gpu = _on_gpu(event)
    return Span(
        event.name,
        round(event.time_range.start * 1e3) + shift,
        round(event.time_range.end * 1e3) + shift,
        event.device_resource_id if on_gpu else event.thread,
        event.sequence_nr,
        bool(event.fwd_thread),
        sum(round(kernel.duration * 1e3) for kernel in event.kernels),
        on_gpu,
    )


def recording_of(
    spans: list[Span], steps: list[StepTimes], unprofiled_s: float | None, device: torch.device
) -> Recording:
    """The spans of these steps, and all that say where backward's nodes come from."""
    thread = next(span.thread for span in spans if span.name == STEP)
    begin = round(steps[0].began * 1e9)
    end = round((steps[-1].began + steps[-1].wall) * 1e9)
    inside = [span for span in spans if span.end > begin and span.start < end and span.name != STEP]
    return Recording(steps, inside, thread, unprofiled_s, device.type == "cuda")
