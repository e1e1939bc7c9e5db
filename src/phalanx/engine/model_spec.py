"""What a model needs to be built and used: name, classes, input size, normalisation. Saved with checkpoints."""

from dataclasses import asdict, dataclass
from typing import Any

from phalanx.config.schema import EvalConfig, RunConfig
from phalanx.data.augment.framing import has_margin
from phalanx.data.sources.open import Splits
from phalanx.errors import UserError


@dataclass(frozen=True)
class ModelSpec:
    """Enough to build the model and to prepare an image for it, without the training data."""

    model: str
    classes: list[str]
    channels: int
    image_size: int
    mean: list[float]
    std: list[float]
    multi_label: bool = False  # whether a sample may have several labels: each class has a probability of its own
    margin: bool = True  # whether validation takes a centre crop: the images show more than their subject

    @classmethod
    def of(cls, config: RunConfig, splits: Splits) -> "ModelSpec":
        source = splits.train
        for key, given in (("data.mean", config.data.mean), ("data.std", config.data.std)):
            if given is not None and len(given) != source.channels:
                raise UserError(
                    f"{key} has {len(given)} values",
                    why=f"the images have {source.channels} channels",
                    remedy=f"give {source.channels}, or leave it out to use the data's own",
                )
        image_size = config.data.image_size or source.image_size
        return cls(
            model=config.model.name,
            classes=source.classes,
            channels=source.channels,
            image_size=image_size,
            mean=list(config.data.mean or source.mean),
            std=list(config.data.std or source.std),
            multi_label=source.labels.ndim == 2,
            margin=has_margin(splits.val, image_size),
        )

    def k(self, config: EvalConfig) -> int:
        """The k of top-k that is counted; 1 where top-1 alone is, or where a sample may have several labels."""
        return 1 if self.multi_label else config.k(len(self.classes))

    def saved(self) -> dict[str, Any]:
        return asdict(self)
