"""The types that stages of the pipeline pass on: sources, views, micro-batches and batches."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt

from phalanx.data.order import Indices

if TYPE_CHECKING:
    import torch  # not at run time: commands that only look at data or pack it start seconds earlier

    from phalanx.data.gpu_copies import GpuCopy

Pixels = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class View:
    """The crop of one image: its box, in pixels, and whether it is flipped left to right."""

    top: float
    left: float
    height: float
    width: float
    flip: bool = False


class Framing(Protocol):
    """Chooses the view of each sample. A random choice depends on (seed, epoch, index) and nothing else."""

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
        """How pixels outside of the image are filled: `zero` (black) or `reflect`."""
        ...

    def views(self, indices: Indices, sizes: npt.NDArray[np.int64], epoch: int) -> list[View]:
        """A view per sample; `sizes` holds each image's (height, width)."""
        ...


@dataclass
class Read:
    """Samples after reading: pixels (n, size, size, channels), labels and indices.

    Labels are class numbers (n,), or where a sample may have several, zeros and ones (n, classes).

    `indices` are the samples that were used: training replaces a bad image by another. `bad` has (index, reason) of
    each bad image.
    """

    images: Pixels
    labels: npt.NDArray[np.int64]
    indices: Indices
    bad: list[tuple[int, str]] = field(default_factory=list)


class Source(Protocol):
    """A split of a dataset: labelled images by index."""

    description: str  # "CIFAR-10 binary, 50,000 × 32×32×3"
    classes: list[str]
    labels: npt.NDArray[np.int64]  # (n,), or (n, classes) with several labels a sample
    channels: int
    image_size: int  # the input size of a model that the data suggests
    mean: tuple[float, ...]
    std: tuple[float, ...]
    extent: tuple[int, int] | None  # height and width, where all images have the same

    def __len__(self) -> int: ...

    def name(self, index: int) -> str:
        """A sample's name in messages: its file, or `cifar-10 train #17`."""
        ...

    def read(self, indices: Indices, framing: Framing, epoch: int, *, replace_bad: bool) -> Read:
        """Read and crop samples. A bad image is replaced by the next good one, or left out without `replace_bad`."""
        ...


@dataclass
class MicroBatch:
    """Images (n, channels, height, width) as uint8, channels last in memory; int64 labels; sample indices.

    Labels are (n,), or (n, classes) with several labels a sample.
    """

    number: int
    images: "torch.Tensor"
    labels: "torch.Tensor"
    indices: "torch.Tensor"
    on_gpu: "GpuCopy | None" = None  # the same images and labels there

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
    bad: list[tuple[str, str]] = field(default_factory=list)  # (name, reason) of bad images among its samples
    again: bool = False  # whether the next step uses the same samples
