"""Images as datasets return them (PIL, numpy, tensors) as uint8 arrays (height, width, channels)."""

from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from phalanx.data.base import Pixels
from phalanx.data.decode.images import as_mode
from phalanx.errors import UserError


def as_pixels(image: Any, channels: int | None, where: str) -> Pixels:
    """An image as uint8 (height, width, channels); `channels` None leaves them as they are."""
    if isinstance(image, Image.Image):
        if channels is None:
            channels = 1 if image.mode in ("1", "L", "LA", "I", "F") or image.mode.startswith("I;16") else 3
        pixels: Pixels = np.asarray(as_mode(image, "L" if channels == 1 else "RGB"))
        return pixels.reshape(*pixels.shape[:2], -1)
    is_tensor = hasattr(image, "numpy") and hasattr(image, "permute")
    array = image.numpy() if is_tensor else image
    if not isinstance(array, np.ndarray) or array.ndim not in (2, 3):
        raise _no_image(image, where)
    if array.ndim == 3 and is_tensor:
        array = array.transpose(1, 2, 0)  # tensors have their channels first
    array = _as_bytes(array if array.ndim == 3 else array[:, :, None], where)
    if array.shape[2] not in (1, 3):
        raise _no_image(image, where)
    return with_channels(array, channels)


def _as_bytes(array: npt.NDArray[Any], where: str) -> Pixels:
    """Floating-point images are in 0..1, as torchvision's ToTensor makes them."""
    if array.dtype == np.uint8:
        return array
    if array.dtype == np.bool_:
        return array.astype(np.uint8) * np.uint8(255)
    if np.issubdtype(array.dtype, np.floating) and (not array.size or (array.min() >= 0 and array.max() <= 1)):
        rounded: Pixels = np.rint(array * 255).astype(np.uint8)
        return rounded
    raise UserError(
        f"{where}: an image has values of type {array.dtype} from {array.min()} to {array.max()}",
        why="images are uint8 in 0..255, or floating-point in 0..1; Phalanx normalises them itself",
        remedy="return images before normalisation; data.mean and data.std say how they are normalised",
    )


def with_channels(array: Pixels, channels: int | None) -> Pixels:
    """An image in grey (1) or colour (3); None leaves it as it is. Transparency is dropped, as from image files."""
    array = array[:, :, :3]
    own = array.shape[2]
    if channels is None or channels == own:
        return array
    if own == 1:
        return np.repeat(array, channels, axis=2)
    return np.asarray(Image.fromarray(np.ascontiguousarray(array)).convert("L"))[:, :, None]


def _no_image(image: Any, where: str) -> UserError:
    shape = getattr(image, "shape", None)
    given = type(image).__name__ + (f" of shape {tuple(shape)}" if shape is not None else "")
    return UserError(
        f"{where}: a sample's image is a {given}",
        why="an image is a PIL image, an array (height, width[, 1 or 3]) or a tensor ([1 or 3,] height, width)",
        remedy="return one of these as the first element of a sample",
    )
