"""What a trained model is made for: its classes, channels, size and normalisation. It travels with every checkpoint."""

from dataclasses import asdict, dataclass
from typing import Any

from phalanx.config.schema import RunConfig
from phalanx.data.open import Splits
from phalanx.errors import UserError


@dataclass(frozen=True)
class Identity:
    """Enough to build the model and to prepare an image for it, without the training data."""

    model: str
    classes: list[str]
    channels: int
    image_size: int
    mean: list[float]
    std: list[float]

    @classmethod
    def of(cls, config: RunConfig, splits: Splits) -> "Identity":
        source = splits.train
        for key, given in (("data.mean", config.data.mean), ("data.std", config.data.std)):
            if given is not None and len(given) != source.channels:
                raise UserError(
                    f"{key} has {len(given)} values",
                    why=f"the images have {source.channels} channels",
                    remedy=f"give {source.channels}, or leave it out to use the data's own",
                )
        return cls(
            model=config.model.name,
            classes=source.classes,
            channels=source.channels,
            image_size=config.data.image_size or source.image_size,
            mean=list(config.data.mean or source.mean),
            std=list(config.data.std or source.std),
        )

    def saved(self) -> dict[str, Any]:
        return asdict(self)
