"""The usual settings as flags: one table from a flag to the settings that it stands for."""

from collections.abc import Callable, Mapping
from typing import Any

from phalanx.config.resolve import Layer, nest


def _epochs(value: float) -> str:
    return f"{value:g}ep"


def _places(value: str) -> list[str]:
    return [f"{place.strip()}ep" for place in value.split(",") if place.strip()]


def _same(value: Any) -> Any:
    return value


# flag → (setting, how its value is written there)
FLAGS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "model": ("model.name", _same),
    "pretrained": ("model.pretrained", _same),
    "initializer": ("model.initializer", _same),
    "data": ("data.source", _same),
    "batch_size": ("train.batch_size", _same),
    "global_batch_size": ("train.global_batch_size", _same),
    "epochs": ("train.length", _epochs),
    "lr": ("optim.lr", _same),
    "optimizer": ("optim.name", _same),
    "momentum": ("optim.momentum", _same),
    "weight_decay": ("optim.weight_decay", _same),
    "lr_schedule": ("schedule.kind", _same),
    "lr_step_epochs": ("schedule.milestones", _places),
    "lr_factor": ("schedule.factor", _same),
    "warmup_epochs": ("schedule.warmup", _epochs),
    "label_smoothing": ("loss.label_smoothing", _same),
    "top_k": ("eval.top_k", _same),
    "precision": ("machine.precision", _same),
    "device": ("machine.device", _same),
    "seed": ("train.seed", _same),
    "monitor": ("train.monitor", _same),
    "log_every": ("train.log_every", _same),
    "update_method": ("exchange.method", _same),
    "workers": ("exchange.workers", _same),
    "servers": ("exchange.servers", _same),
    "mode": ("exchange.mode", _same),
    "compress": ("exchange.compress", _same),
}


def flag_layers(given: Mapping[str, Any]) -> list[Layer]:
    """A layer for each flag that was given (None is not given)."""
    layers = []
    if given.get("lr_step_epochs") is not None and given.get("lr_schedule") is None:
        layers.append(Layer("--lr-step-epochs", nest("schedule.kind", "step")))
    if (given.get("workers") or 1) > 1 and given.get("update_method") is None:
        layers.append(Layer("--workers", nest("exchange.method", "collective")))
    for flag, value in given.items():
        if value is not None:
            key, written = FLAGS[flag]
            layers.append(Layer(f"--{flag.replace('_', '-')}", nest(key, written(value))))
    return layers
