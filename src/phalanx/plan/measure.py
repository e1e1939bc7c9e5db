"""Time the recipe's model on this machine, layer by layer: forward, when each gradient is ready, and the update."""

import statistics
import time
from dataclasses import dataclass

import torch
from torch import nn

from phalanx import cpu
from phalanx.config.schema import RunConfig
from phalanx.machine.settings import Settings, choose
from phalanx.models.build import build_model
from phalanx.models.freeze import freeze
from phalanx.models.params import no_decay_names
from phalanx.optim.schedule import Schedule
from phalanx.optim.update import Update
from phalanx.plan.compute import StepTimes
from phalanx.plan.setup import Data

WARM_UP, STEPS = 2, 5
RATE = Schedule("constant", 1e-3, 1000, 0, "linear", 0.0, (), 0.1, 2.0, 0.0)


@dataclass(frozen=True)
class Timed:
    """The medians of some steps, and how much they vary."""

    times: StepTimes
    images_per_s: float
    spread: float  # deviation over mean
    precision: str


def measure_worker(config: RunConfig, data: Data, batch: int) -> Timed:
    """One worker's times on this machine, with its threads, precision and fast path. Takes some steps of training."""
    settings = choose(config.machine)
    settings.apply()
    plain = config.model.model_copy(update={"pretrained": False})
    model = build_model(plain, num_classes=data.classes, channels=data.channels, image_size=data.image_size)
    freeze(model, config.model.freeze)
    model = model.to(settings.device).to(memory_format=settings.memory_format).train()
    cpu.prepare(model, settings.fast_path, to_train=True)
    shape = (batch, data.channels, data.image_size, data.image_size)
    cpu.choose(model, [shape], settings)
    images = torch.randn(shape, device=settings.device).contiguous(memory_format=settings.memory_format)
    labels = torch.randint(data.classes, (batch,), device=settings.device)
    params = {name: param for name, param in model.named_parameters() if param.requires_grad}
    update = Update(params, no_decay_names(model), config.optim, RATE)
    steps = [_step(model, params, images, labels, update, settings, number) for number in range(WARM_UP + STEPS)]
    return _medians(steps[WARM_UP:], list(params), batch, settings)


@dataclass(frozen=True)
class _Step:
    forward_s: float
    ready: dict[str, float]
    update_s: float


def _step(
    model: nn.Module,
    params: dict[str, nn.Parameter],
    images: torch.Tensor,
    labels: torch.Tensor,
    update: Update,
    settings: Settings,
    number: int,
) -> _Step:
    ready: dict[str, float] = {}

    def now() -> float:
        if settings.device.type == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter()

    def note(name: str) -> None:
        ready[name] = now()

    hooks = [
        param.register_post_accumulate_grad_hook(lambda _, name=name: note(name)) for name, param in params.items()
    ]
    begin = now()
    with settings.autocast():
        loss = nn.functional.cross_entropy(model(images), labels)
    forward = now()
    loss.backward()
    end = now()
    update(number)
    update.clear()
    done = now()
    for hook in hooks:
        hook.remove()
    order = {name: moment - forward for name, moment in ready.items()}
    return _Step(forward - begin, order or {next(iter(params)): end - forward}, done - end)


def _medians(steps: list[_Step], names: list[str], batch: int, settings: Settings) -> Timed:
    places = {name: place for place, name in enumerate(names)}
    middle = {name: statistics.median(step.ready[name] for step in steps) for name in steps[0].ready}
    ready = tuple((places[name], seconds) for name, seconds in sorted(middle.items(), key=lambda item: item[1]))
    times = StepTimes(
        statistics.median(step.forward_s for step in steps), ready, statistics.median(step.update_s for step in steps)
    )
    whole = [step.forward_s + max(step.ready.values()) for step in steps]
    # A busy machine may delay a step or two for long: that is not how workers differ.
    spread = min(0.5, statistics.pstdev(whole) / statistics.fmean(whole))
    rate = batch / (times.compute_s + times.update_s)
    return Timed(times, rate, spread, settings.decisions["precision"].value)
