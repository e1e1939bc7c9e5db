"""What every stage of the pipeline passes on: a source of samples, a view of each, and batches."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt

from phalanx.data.order import Indices

if TYPE_CHECKING:
    import torch  # to look at data and to pack it, its seconds of import are not needed

Pixels = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class View:
    """How one sample is seen: the box of the image that is kept, and whether it is mirrored."""

    top: float
    left: float
    height: float
    width: float
    flip: bool = False


class Framing(Protocol):
    """Chooses the view of each sample. Random ones draw from (seed, epoch, index) and from nothing else."""

    @property
    def size(self) -> int:
        """Height and width of the result."""
        ...

    @property
    def interpolation(self) -> str:
        """How a view is resized: `bilinear` or `bicubic`."""
        ...

    @property
    def pad_mode(self) -> str:
        """What a view sees outside of the image: `zero` (black) or `reflect`."""
        ...

    def views(self, indices: Indices, sizes: npt.NDArray[np.int64], epoch: int) -> list[View]:
        """A view per sample; `sizes` holds each image's (height, width)."""
        ...


@dataclass
class Read:
    """Samples as read: pixels (n, size, size, channels), their labels, and what stands for a bad one.

    `indices` are the samples really used (a bad image is replaced in training); `bad` the (index, reason) met.
    """

    images: Pixels
    labels: npt.NDArray[np.int64]
    indices: Indices
    bad: list[tuple[int, str]] = field(default_factory=list)


class Source(Protocol):
    """A split of a dataset: labelled images by index."""

    description: str  # "CIFAR-10 binary, 50,000 × 32×32×3"
    classes: list[str]
    labels: npt.NDArray[np.int64]
    channels: int
    image_size: int  # what the data suggests as a model's input
    mean: tuple[float, ...]
    std: tuple[float, ...]
    extent: tuple[int, int] | None  # height and width, where all images have the same

    def __len__(self) -> int: ...

    def name(self, index: int) -> str:
        """What a person would call a sample: its file, or `cifar-10 train #17`."""
        ...

    def read(self, indices: Indices, framing: Framing, epoch: int, *, replace_bad: bool) -> Read:
        """Samples framed. A bad image is replaced by the next good one, or left out where exactness counts."""
        ...


@dataclass
class MicroBatch:
    """Images (n, channels, height, width) as uint8, channels last in memory; int64 labels; sample indices."""

    number: int
    images: "torch.Tensor"
    labels: "torch.Tensor"
    indices: "torch.Tensor"

    @property
    def count(self) -> int:
        return int(self.labels.shape[0])


@dataclass
class Batch:
    """One worker's part of one step. `total` counts the samples of the step over all workers."""

    epoch: int
    start: int  # where its samples begin in the epoch's order
    micro: list[MicroBatch]
    total: int
    last: bool  # of its epoch
    wait_s: float = 0.0  # how long the trainer waited for it
    bad: list[tuple[str, str]] = field(default_factory=list)  # (sample's name, reason) met on the way
