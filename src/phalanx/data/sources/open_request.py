"""The request to open a dataset."""

from concurrent.futures import Executor
from dataclasses import dataclass, field

from phalanx.config.schema import DataConfig
from phalanx.data.sources.folders import DISK, Storage
from phalanx.data.sources.layouts.tree import FolderTree


@dataclass(frozen=True)
class OpenRequest:
    """The settings that a format opens data with. `classes` are those of the training data or model, if known."""

    config: DataConfig
    channels: int | None
    pool: Executor | None
    classes: list[str] | None = None
    tree: FolderTree = field(default_factory=FolderTree)  # folders listed so far
    storage: Storage = DISK
