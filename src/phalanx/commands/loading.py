"""A trained model, ready to use, from what a user names: a run (its best checkpoint) or one checkpoint."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from phalanx import cpu
from phalanx.config.resolve import Layer, resolve
from phalanx.config.schema import RunConfig
from phalanx.data.augment.mixing import to_input
from phalanx.engine.model_spec import ModelSpec
from phalanx.engine.state import ALGORITHMS, Best
from phalanx.engine.weights import load_weights
from phalanx.errors import UserError
from phalanx.machine.settings import Settings, choose
from phalanx.models.build import build_model
from phalanx.runs import checkpoint
from phalanx.runs.code import install_code


@dataclass(frozen=True)
class Trained:
    """A model with all that is needed to prepare images for it, and where it came from."""

    path: Path  # of the checkpoint
    model: nn.Module
    config: RunConfig
    spec: ModelSpec
    settings: Settings
    step: int
    batch_size: int  # of evaluation in training
    judged: Best | None  # the evaluation of these weights in training; None if training had better ones

    @property
    def home(self) -> Path:
        """The folder for outputs: the run folder, or a checkpoint's own if it has no run."""
        return home_of(self.path)

    @property
    def threads(self) -> int:
        """Threads for decoding."""
        return self.config.data.threads or self.settings.threads

    @torch.inference_mode()
    def logits(self, images: Tensor) -> Tensor:
        """The model's answer to framed uint8 images (n, channels, size, size), in float32."""
        spec, settings = self.spec, self.settings
        inputs = to_input(images.to(settings.device), spec.mean, spec.std, memory_format=settings.memory_format)
        with settings.autocast():
            answer: Tensor = self.model(inputs)
        return answer.float()


def home_of(checkpoint_path: Path) -> Path:
    """The run's folder of a checkpoint; or the checkpoint itself, where it lies alone."""
    path = checkpoint_path if checkpoint_path.parent.name else checkpoint_path.resolve()
    return path.parent.parent if path.parent.name == checkpoint.FOLDER else path


def load_trained(place: Path, machine: Mapping[str, Any]) -> Trained:
    """The averaged weights if there are any, in eval mode, on the device; sets this process's settings.

    Settings of `machine` replace those of the run; what both leave at `auto` is chosen for this machine.
    """
    loaded = checkpoint.load(checkpoint.find(place))
    try:
        spec, training = ModelSpec(**loaded.state["identity"]), loaded.state["training"]
        step, best = int(training["step"]), training["best"] and Best(**training["best"])
        samples_per_step = int(loaded.state["samples_per_step"])
        saved = Layer(str(loaded.path / checkpoint.STATE), loaded.state["config"])
        tensors = loaded.tensors.get("ema", loaded.tensors["model"])
    except (KeyError, TypeError) as error:
        raise UserError(
            f"{loaded.path} is not a complete checkpoint",
            why=f"its {checkpoint.STATE} or its weights are incomplete ({type(error).__name__}: {error})",
            remedy="name a checkpoint of `phalanx train` of this version",
        ) from error
    # The weights are loaded below: no pretrained or special initial values are needed.
    unborn = {"pretrained": False, "initializer": "default"}
    config = resolve([saved, Layer("the command line", {"machine": dict(machine), "model": unborn})]).config
    install_code(home_of(loaded.path), config)
    settings = choose(config.machine)
    settings.apply()
    model = build_model(
        config.model,
        num_classes=len(spec.classes),
        channels=spec.channels,
        image_size=spec.image_size,
    )
    model = model.to(settings.device, memory_format=settings.memory_format)  # type: ignore[call-overload]
    load_weights(model, tensors, str(loaded.path))
    cpu.prepare(model, settings.fast_path, to_train=False)
    cpu.load(model, training.get(ALGORITHMS, {}))
    if settings.compile:
        model.compile()
    return Trained(
        path=loaded.path,
        model=model.eval().requires_grad_(False),
        config=config,
        spec=spec,
        settings=settings,
        step=step,
        batch_size=config.eval.batch_size or max(1, samples_per_step // config.micro_batches),
        judged=best if best and best.step == step else None,
    )
