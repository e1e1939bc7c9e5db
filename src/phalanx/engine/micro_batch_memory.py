"""How many samples of a micro-batch fit into memory (`train.fit_memory`), by what a forward pass keeps of each."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from phalanx.config.schema import RunConfig
from phalanx.engine.model_spec import ModelSpec
from phalanx.machine.memory import free_bytes
from phalanx.machine.settings import Settings
from phalanx.models.build import build_model

_PROBES = (2, 4)  # samples; what a pass keeps is a + b · samples, and two sizes give both
_USABLE = 0.8  # of what is free: others may need some, and allocators keep more than is in use
_COPIES = 5  # of each weight, at most: itself, its gradient, two states of the optimizer, an average
_WORK = 1.4  # of what is kept: gradients of activations and workspaces of libraries come on top


@dataclass(frozen=True)
class MemoryNeed:
    """Bytes of a training step: whatever its size, and for each sample of a micro-batch."""

    fixed: float
    sample: float

    def samples(self, free: float) -> int:
        """How many fit into that memory."""
        return int((_USABLE * free - self.fixed) / self.sample)


def samples_that_fit(config: RunConfig, spec: ModelSpec, settings: Settings, processes: int) -> int:
    """Measured with a model of its own, which is thrown away. `processes` share this machine's memory."""
    need = measure_need(config, spec, settings)
    return need.samples(free_bytes(settings.device) / (processes if settings.device.type == "cpu" else 1))


def measure_need(config: RunConfig, spec: ModelSpec, settings: Settings) -> MemoryNeed:
    """What the training of a configuration needs."""
    drawn = torch.get_rng_state()
    model = build_model(config.model, num_classes=len(spec.classes), channels=spec.channels, image_size=spec.image_size)
    model = model.to(settings.device, memory_format=settings.memory_format)  # type: ignore[call-overload]
    few, more = (_kept_bytes(model.train(), spec, settings, count) for count in _PROBES)
    torch.set_rng_state(drawn)  # also after dropout: the weights of the run stay what they were
    kept = (more - few) / (_PROBES[1] - _PROBES[0])
    passes = 2 if config.adversarial.loss == "trades" or config.distill.loss == "mutual" else 1
    values = sum(parameter.numel() for parameter in model.parameters()) * (2 if config.distill.loss == "mutual" else 1)
    pixels = spec.channels * spec.image_size**2
    return MemoryNeed(4.0 * _COPIES * values, passes * (_WORK * kept + 8.0 * pixels))


def _kept_bytes(model: nn.Module, spec: ModelSpec, settings: Settings, count: int) -> int:
    """What a forward pass of so many samples keeps for the backward pass."""
    own = {tensor.untyped_storage().data_ptr() for tensor in (*model.parameters(), *model.buffers())}
    kept: dict[int, int] = {}

    def note(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    images = torch.zeros(count, spec.channels, spec.image_size, spec.image_size, device=settings.device)
    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor), settings.autocast():
        logits = model(images.contiguous(memory_format=settings.memory_format))  # what it keeps lives as long as this
    del logits
    return sum(kept.values())
