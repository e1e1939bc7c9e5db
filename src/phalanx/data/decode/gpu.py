"""JPEGs decoded on a GPU, by nvJPEG through torchvision: `data.decode=gpu`. The CPU crops and resizes as ever.

Pixels are those of another decoder: a run keeps its setting, and its numbers differ a little from those of `exact`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from phalanx.data.base import Pixels, View
from phalanx.data.decode.resize import resize_all
from phalanx.errors import UserError

_JPEG = b"\xff\xd8\xff"


@dataclass(frozen=True)
class GpuDecoder:
    """`device` is torch's name of the GPU."""

    device: str

    def pixels(self, data: Sequence[bytes], channels: int) -> list[Pixels] | None:
        """The pixels of whole JPEGs; None if the GPU cannot decode one of them: it does not say which."""
        import torch
        from torchvision.io import ImageReadMode, decode_jpeg

        packed = [torch.frombuffer(bytearray(each), dtype=torch.uint8) for each in data]
        mode = ImageReadMode.GRAY if channels == 1 else ImageReadMode.RGB
        try:
            decoded = decode_jpeg(packed, mode, device=self.device)
        except RuntimeError:
            return None
        return [image.permute(1, 2, 0).cpu().numpy() for image in decoded]

    def can(self, data: bytes) -> bool:
        """Whether it is worth trying."""
        return data.startswith(_JPEG)


def frame(
    images: Sequence[Pixels], views: Sequence[View], interpolation: str, pad_mode: str, out: Pixels, places: list[int]
) -> None:
    """Crop and resize decoded images, each to its place in `out`."""
    made = np.empty((len(images), *out.shape[1:]), dtype=np.uint8)
    resize_all(images, views, made.shape[1], interpolation, pad_mode, made)
    out[places] = made


def gpu_decoder() -> GpuDecoder:
    """The decoder on this process's GPU. Refused with the reason where there is none."""
    import torch

    if not torch.cuda.is_available():
        why = "torch finds no NVIDIA GPU here" if torch.version.cuda else "this torch was built without CUDA"
        raise UserError(
            "data.decode=gpu cannot be used on this machine",
            why=f"{why}, and nvJPEG decodes on one",
            remedy="data.decode=fast, which decodes in threads; `phalanx doctor --gpu` shows more",
        )
    return GpuDecoder(f"cuda:{torch.cuda.current_device()}")
