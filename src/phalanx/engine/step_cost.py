"""What a training step costs here: its work, counted, and its time in each precision, measured once per machine.

Both use a model of their own, which is thrown away: the run's weights and random numbers stay what they were.
"""

import hashlib
import json
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from torch import Tensor, nn
from torch.nn import functional as F

from phalanx import cpu
from phalanx.config.batch import samples_per_step
from phalanx.config.schema import ModelConfig, RunConfig
from phalanx.engine.micro_batch_memory import samples_that_fit
from phalanx.engine.model_spec import ModelSpec
from phalanx.machine.precision import PRECISIONS
from phalanx.machine.settings import DTYPES, Settings
from phalanx.machine.timings import machine, read_timings, timings
from phalanx.models.build import build_model
from phalanx.native.build import find_library
from phalanx.native.compiler import PARALLEL_SOURCES
from phalanx.observe.progress import progress

NAME = "precisions"  # of the cached times
WORTH_TIMING = 3e9  # FLOPs of a micro-batch: with fewer, a run is too short to wait for it
_AT_ONCE = 2e11  # FLOPs of a timed step, at most: fewer samples say the same
_ROUNDS, _LIMIT_S = 3, 15.0  # steps in each precision; no round begins later
_STEP_S = 10.0  # a step that takes longer is not worth three more
_BACKWARD = 3  # the cost of a training step, in forward passes
_WORTH_CACHING_S = 0.2


@dataclass(frozen=True)
class StepCost:
    """The work of a micro-batch, and how long some of it took in each precision."""

    samples: int  # of a micro-batch
    flops: float | None  # None: could not be counted
    timed: int = 0  # samples of the steps that were timed
    seconds: dict[str, float] | None = None  # of CPU time a thread


class NotTimed(Exception):
    """Why the precisions of a model that could be timed were not."""


def micro_batch_of(config: RunConfig) -> int:
    """The samples of the largest micro-batch."""
    return -(-samples_per_step(config) // config.micro_batches)


def count_work(config: RunConfig, spec: ModelSpec) -> StepCost:
    """The FLOPs of a micro-batch's forward and backward pass: convolutions and linear layers."""
    samples = micro_batch_of(config)
    key = _about(config, spec)
    each = read_timings(NAME).get(key)
    if not isinstance(each, float):
        begin = time.perf_counter()
        each = _flops_of_a_sample(config, spec)
        if each is not None and time.perf_counter() - begin > _WORTH_CACHING_S:
            with timings(NAME) as cached:
                cached[key] = each
    return StepCost(samples, None if each is None else each * samples)


def time_precisions(cost: StepCost, config: RunConfig, spec: ModelSpec, settings: Settings) -> StepCost:
    """The same with the time of a step in each precision, with this process's threads; `cost` has the work.

    What is known is used at once; otherwise one process of this machine measures at a time. Raises NotTimed.
    """
    assert cost.flops is not None
    samples = _power_of_two(min(cost.samples, max(1, int(_AT_ONCE / cost.flops * cost.samples))))
    key = f"{samples} of {_about(config, spec)}, {_kernels(settings)} on {machine()}"
    known: Any = read_timings(NAME).get(key)
    if not _complete(known):
        with timings(NAME) as cached:
            if not _complete(cached.get(key)):
                with _random_state_kept():
                    fewer = _that_fit(samples, config, spec, settings)
                    cached[key] = {"samples": fewer, **_time_steps(config, spec, settings, fewer)}
            known = cached[key]
    return replace(cost, timed=known["samples"], seconds={name: known[name] for name in PRECISIONS})


def _complete(known: object) -> bool:
    """Whether cached times are all there: the file may have been edited."""
    if not isinstance(known, dict) or not isinstance(known.get("samples"), int):
        return False
    return all(isinstance(known.get(name), float) for name in PRECISIONS)


def _power_of_two(samples: int) -> int:
    """The largest that is not more: of few sizes, since convolutions are timed for each."""
    return 1 << (samples.bit_length() - 1)


def _that_fit(samples: int, config: RunConfig, spec: ModelSpec, settings: Settings) -> int:
    """As many of these samples as fit into memory in fp32, though the run may use bf16 and need half of it."""
    if samples == 1:  # to find out would take longer than the step
        return 1
    in_fp32 = replace(settings, dtype=torch.float32)
    fits = samples_that_fit(config.model_copy(update={"model": _untrained(config)}), spec, in_fp32, 1)
    if fits < 1:
        raise NotTimed("there is no memory to time a step in fp32")
    return _power_of_two(min(samples, fits))


def _flops_of_a_sample(config: RunConfig, spec: ModelSpec) -> float | None:
    """None where the model cannot be built or used like this: what is wrong with it shows when it is trained."""
    total = 0.0

    def count(module: nn.Module, _: Any, y: Tensor) -> None:
        nonlocal total
        weight = module.weight
        assert isinstance(weight, Tensor)
        total += 2.0 * y[0].numel() * weight[0].numel()

    with _random_state_kept():
        try:
            model = _build(config, spec).eval()
            for module in model.modules():
                if isinstance(module, nn.Conv2d | nn.Linear):
                    module.register_forward_hook(count)
            with torch.no_grad():
                model(torch.zeros(1, spec.channels, spec.image_size, spec.image_size))
        except Exception:
            return None
    return _BACKWARD * total or None


def _time_steps(config: RunConfig, spec: ModelSpec, settings: Settings, samples: int) -> dict[str, float]:
    """The least CPU time of a step, divided by the threads. Other processes on the cores do not count."""
    model = _build(config, spec).to(memory_format=settings.memory_format).train()
    cpu.prepare(model, settings.fast_path, to_train=True)
    shape = (samples, spec.channels, spec.image_size, spec.image_size)
    images = torch.randn(shape).contiguous(memory_format=settings.memory_format)
    labels = torch.randint(len(spec.classes), (samples,))
    times: dict[str, list[float]] = {name: [] for name in PRECISIONS}
    begin = time.perf_counter()
    with progress(Console(stderr=True), "precisions timed", _ROUNDS * len(PRECISIONS), after_s=1.0) as advance:
        for number in range(_ROUNDS):
            if number and time.perf_counter() - begin > _LIMIT_S:
                break
            for name in PRECISIONS:
                tried = replace(settings, dtype=DTYPES[name])
                cpu.forget(model)
                cpu.choose(model, [shape], tried)
                first = time.perf_counter()
                _step(model, images, labels, tried)  # memory is faulted in, kernels are chosen
                if time.perf_counter() - first > _STEP_S:
                    raise NotTimed(f"a step takes more than {_STEP_S:.0f} s: too long to time")
                before = time.process_time()
                _step(model, images, labels, tried)
                times[name].append((time.process_time() - before) / settings.threads)
                advance(1)
    return {name: min(each) for name, each in times.items()}


def _step(model: nn.Module, images: Tensor, labels: Tensor, settings: Settings) -> None:
    with settings.autocast():
        loss = F.cross_entropy(model(images).float(), labels)
    loss.backward()
    for parameter in model.parameters():
        parameter.grad = None


def _build(config: RunConfig, spec: ModelSpec) -> nn.Module:
    plain, classes = _untrained(config), len(spec.classes)
    return build_model(plain, num_classes=classes, channels=spec.channels, image_size=spec.image_size)


def _untrained(config: RunConfig) -> ModelConfig:
    return config.model.model_copy(update={"pretrained": False})


def _about(config: RunConfig, spec: ModelSpec) -> str:
    """The model and its images, with all that changes what it computes."""
    what = json.dumps([config.model.model_dump(mode="json"), config.code.files, config.code.packages], sort_keys=True)
    digest = hashlib.sha256(what.encode()).hexdigest()[:12]
    return f"{spec.channels}x{spec.image_size}x{spec.image_size} by {spec.model} {digest} to {len(spec.classes)}"


def _kernels(settings: Settings) -> str:
    """The layout and what computes in it: other compiled code may be faster in one of the precisions."""
    layout = str(settings.memory_format).removeprefix("torch.")
    if settings.fast_path != "native":
        return f"{layout} {settings.fast_path}"
    found = (find_library(name).handle for name in PARALLEL_SOURCES)
    code = b"".join(Path(handle._name).read_bytes() for handle in found if handle is not None)
    return f"{layout} native {hashlib.sha256(code).hexdigest()[:12]}"


@contextmanager
def _random_state_kept() -> Iterator[None]:
    """Whatever is drawn in this context, the run's own draws stay what they were."""
    drawn, by_python, by_numpy = torch.get_rng_state(), random.getstate(), np.random.get_state()
    try:
        yield
    finally:
        torch.set_rng_state(drawn)
        random.setstate(by_python)
        np.random.set_state(by_numpy)
