"""What whoever opens a dataset is asked for."""

from concurrent.futures import Executor
from dataclasses import dataclass

from phalanx.config.schema import DataConfig


@dataclass(frozen=True)
class OpenRequest:
    """What an opener is asked for. `classes` are those of the training data or model, where they are known."""

    config: DataConfig
    channels: int | None
    pool: Executor | None
    classes: list[str] | None = None
