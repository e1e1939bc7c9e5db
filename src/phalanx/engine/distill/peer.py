"""The second student of mutual distillation."""

from torch import Tensor, nn

from phalanx.config.schema import ModelConfig
from phalanx.engine.distill.extras import Extras
from phalanx.engine.model_spec import ModelSpec
from phalanx.machine.settings import Settings
from phalanx.models.build import build_model


class Peer(Extras):
    """A model with first weights of its own, trained by the same optimizer."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.model(images)
        return logits


def make_peer(config: ModelConfig, name: str | None, spec: ModelSpec, settings: Settings) -> Peer:
    """The second student, drawn after the first one: so the first starts as it would alone."""
    own = config if name is None else ModelConfig(name=name)
    model = build_model(own, num_classes=len(spec.classes), channels=spec.channels, image_size=spec.image_size)
    model = model.to(settings.device, memory_format=settings.memory_format)  # type: ignore[call-overload]
    return Peer(model)
