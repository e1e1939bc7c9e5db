"""Copies of batches on a GPU, made ahead: on a stream of their own, by the thread that makes batches.

So the copy of one batch runs while the GPU computes with another, and neither waits for the host.
"""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class GpuCopy:
    """A micro-batch's tensors on the GPU. The copy may still be under way."""

    images: Tensor
    labels: Tensor
    done: torch.cuda.Event

    def arrived(self) -> tuple[Tensor, Tensor]:
        """Images and labels for kernels that are started from now on by this thread."""
        computing = torch.cuda.current_stream(self.images.device)
        computing.wait_event(self.done)  # the GPU waits, not this thread
        for tensor in (self.images, self.labels):
            tensor.record_stream(computing)  # or its memory could be given away while kernels still read it
        return self.images, self.labels


class GpuCopies:
    """Starts copies to one GPU."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream: torch.cuda.Stream | None = None

    def start(self, images: Tensor, labels: Tensor) -> GpuCopy:
        """Copy tensors, which are pinned: otherwise the copy would wait for the GPU."""
        if self._stream is None:
            self._stream = torch.cuda.Stream(self._device)
        with torch.cuda.stream(self._stream):  # also makes its GPU this thread's: a new thread has GPU 0
            copied = [tensor.to(self._device, non_blocking=True) for tensor in (images, labels)]
            done = torch.cuda.Event()
            done.record(self._stream)
        return GpuCopy(copied[0], copied[1], done)
