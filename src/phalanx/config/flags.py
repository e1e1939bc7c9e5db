"""The usual settings as flags: a table from each flag to its setting."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from phalanx.config.resolve import Layer, flatten, nest
from phalanx.config.schema import RunConfig

OWN = "the run's own"  # begins the origins of what a resumed run keeps with another number of workers


def _epochs(value: float) -> str:
    return f"{value!r}ep"


def _milestones(value: str) -> list[str]:
    return [f"{epoch}ep" for epoch in _parts(value)]


def _parts(value: str) -> list[str]:
    return [part.strip() for part in value.split(",") if part.strip()]


def _numbers(value: str) -> list[int | str]:
    return [int(part) if part.isdecimal() else part for part in _parts(value)]  # non-numbers are refused later


def _teachers(value: str | list[str]) -> list[str]:
    return _parts(value) if isinstance(value, str) else list(value)


def _alone(value: str) -> list[str]:
    return [value]


def _same(value: Any) -> Any:
    return value


# flag → (setting, how its value is written there)
FLAGS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "model": ("model.name", _same),
    "pretrained": ("model.pretrained", _same),
    "initializer": ("model.initializer", _same),
    "data": ("data.source", _same),
    "folds": ("data.folds", _same),
    "teacher": ("distill.teachers", _teachers),
    "batch_size": ("train.batch_size", _same),
    "global_batch_size": ("train.global_batch_size", _same),
    "epochs": ("train.length", _epochs),
    "lr": ("optim.lr", _same),
    "optimizer": ("optim.name", _same),
    "momentum": ("optim.momentum", _same),
    "weight_decay": ("optim.weight_decay", _same),
    "lr_schedule": ("schedule.kind", _same),
    "lr_step_epochs": ("schedule.milestones", _milestones),
    "lr_factor": ("schedule.factor", _same),
    "warmup_epochs": ("schedule.warmup", _epochs),
    "label_smoothing": ("loss.label_smoothing", _same),
    "top_k": ("eval.top_k", _same),
    "precision": ("machine.precision", _same),
    "fast_path": ("machine.fast_path", _same),
    "device": ("machine.device", _same),
    "gpus": ("machine.gpus", _numbers),
    "seed": ("train.seed", _same),
    "monitor": ("train.monitor", _same),
    "log_every": ("train.log_every", _same),
    "log_dir": ("train.log_dir", _same),
    "log": ("log.to", _parts),
    "notify": ("log.notify", _alone),
    "update_method": ("exchange.method", _same),
    "workers": ("exchange.workers", _same),
    "servers": ("exchange.servers", _same),
    "mode": ("exchange.mode", _same),
    "compress": ("exchange.compress", _same),
    "evaluator": ("eval.evaluator", _same),
    "max_restarts": ("exchange.max_restarts", _same),
    "min_workers": ("exchange.min_workers", _same),
    "data_service": ("data.service", _parts),
    "data_servers": ("data.servers", _same),
    "teacher_service": ("distill.service", _parts),
    "teachers": ("distill.servers", _same),
}


def flag_layers(given: Mapping[str, Any], *, spelled: str | None = None) -> list[Layer]:
    """A layer for each flag that was given (None is not given). `spelled` is how errors name a flag, such as "{}="."""

    def origin(flag: str) -> str:
        return spelled.format(flag) if spelled else f"--{flag.replace('_', '-')}"

    layers = []
    if given.get("lr_step_epochs") is not None and given.get("lr_schedule") is None:
        layers.append(Layer(origin("lr_step_epochs"), nest("schedule.kind", "step")))
    if given.get("gpus") is not None:  # before --workers, so that a contradiction shows
        layers.append(Layer(origin("gpus"), nest("exchange.workers", max(1, len(_numbers(given["gpus"]))))))
    for flag, value in given.items():
        if value is not None:
            key, written = FLAGS[flag]
            layers.append(Layer(origin(flag), nest(key, written(value))))
    return layers


def imply_collective(base: Sequence[Layer], given: Sequence[Layer]) -> list[Layer]:
    """Several workers are collective, unless the user names a method."""
    workers, method = last_value([*base, *given], "exchange.workers", 1), last_value(base, "exchange.method", "local")
    named = last_value(given, "exchange.method", None) is not None
    if isinstance(workers, int) and workers > 1 and method == "local" and not named:
        return [Layer(f"exchange.workers={workers}", nest("exchange.method", "collective")), *given]
    return list(given)


def keep_batch(before: RunConfig, given: Sequence[Layer]) -> list[Layer]:
    """A resumed run with another number of workers keeps its steps, unless the user sets them.

    Samples and micro-batches of a step stay the same, and so do the inputs of batch norm, mixing and dropout. Only with
    more workers than micro-batches, these become smaller.
    """
    sizes = ("train.batch_size", "train.global_batch_size", "train.micro_batches", "optim.accumulate")
    workers = last_value(given, "exchange.workers", before.exchange.workers)
    if workers == before.exchange.workers or any(last_value(given, key, None) is not None for key in sizes):
        return list(given)
    parts = before.micro_batches
    kept = {"global_batch_size": before.train.global_batch_size or before.train.batch_size * parts}
    if isinstance(workers, int):
        # Synchronised batch norm sees all parts together, so their sizes do not matter.
        together = parts // before.exchange.workers * workers
        kept["micro_batches"] = together if before.exchange.sync_bn else max(parts, workers)
    layers = [Layer(f"{OWN} batch", {"train": kept})]
    if before.schedule.warmup_start == "one-worker" and kept.get("micro_batches") != parts:  # keep the rates, too
        layers.append(Layer(f"{OWN} rates", nest("schedule.warmup_start", f"one-of-{parts}")))
    gpus = before.machine.gpus
    if gpus is not None and isinstance(workers, int):  # fewer workers use the first ones
        layers.append(Layer(f"{OWN} GPUs", nest("machine.gpus", gpus[:workers])))
    return [*layers, *given]


def last_value(layers: Sequence[Layer], key: str, default: Any) -> Any:
    """A setting's value in the topmost layer that has it, not validated."""
    return next((flat[key] for layer in reversed(layers) if key in (flat := flatten(layer.values))), default)
