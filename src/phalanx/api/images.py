"""Images that a user hands to `predict`: files, data, PIL images, arrays and tensors, all decoded in the same way."""

import inspect
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from io import BytesIO
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from torch import Tensor

from phalanx.api.arguments import reference
from phalanx.commands.loading import Trained
from phalanx.commands.predict_inputs import NO_LABEL, Split, find_inputs, open_for_prediction
from phalanx.data.decode.deep_images import eight_bits, is_deep
from phalanx.data.decode.ranges import OutOfRange
from phalanx.data.sources.encoded import EncodedSource, decode_pool
from phalanx.data.sources.folders import suggested
from phalanx.data.sources.labelled import Labelled
from phalanx.errors import UserError

_AS_PNG = ("1", "L", "LA", "P", "RGB", "RGBA", "I;16")  # modes that PNG keeps as they are


@dataclass(kw_only=True)
class GivenImages(EncodedSource):
    """A Source of image files and of compressed images in memory."""

    items: list[Path | bytes]
    first: int  # the number of the first one among all that were handed over

    def encoded(self, index: int) -> bytes:
        item = self.items[index]
        return item if isinstance(item, bytes) else item.read_bytes()

    def name(self, index: int) -> str:
        item = self.items[index]
        return f"image {self.first + index}" if isinstance(item, bytes) else str(item)


def given_sources(images: Any, trained: Trained, split: Split = "all") -> Iterator[Labelled]:
    """One image or a list of them, and data, as sources for the model, in the given order."""
    waiting, count = list[Path | bytes](), 0
    for item in _items(images):
        if not isinstance(item, str):
            waiting.append(item)
            continue
        if waiting:
            yield _given_images(waiting, trained, count)
            count, waiting = count + len(waiting), []
        for source in open_for_prediction(item, trained, split):
            yield source
            count += len(source)
    if waiting:
        yield _given_images(waiting, trained, count)


def _given_images(items: list[Path | bytes], trained: Trained, first: int) -> GivenImages:
    spec = trained.spec
    suggestion = suggested("the images", spec.channels)
    return GivenImages(
        description=f"{len(items):,} images",
        items=items,
        first=first,
        classes=spec.classes,
        labels=np.full(len(items), NO_LABEL, dtype=np.int64),
        channels=spec.channels,
        image_size=suggestion.image_size,
        mean=suggestion.mean,
        std=suggestion.std,
        pool=decode_pool(trained.threads),
    )


def _items(images: Any) -> Iterator[Path | bytes | str]:
    """Image files, compressed images, and data by name."""
    if isinstance(images, str | PathLike):
        for one in find_inputs([os.fspath(images)]):
            yield from [one] if isinstance(one, str) else [Path(os.fsdecode(name)) for name in one]
    elif inspect.isclass(images) or inspect.isfunction(images):
        yield reference(images)
    elif isinstance(images, Image.Image):
        yield _png(images)
    elif isinstance(images, np.ndarray | Tensor) and images.ndim == 4:
        yield from (_from_array(one) for one in images)
    elif isinstance(images, np.ndarray | Tensor):
        yield _from_array(images)
    elif isinstance(images, Sequence):
        for one in images:
            yield from _items(one)
    else:
        raise UserError(
            f"{type(images).__name__} is no image",
            why=f"it is {images!r:.80}",
            remedy="give a path, data, a PIL image, a numpy array (height, width, channels) or a tensor (channels, "
            "height, width), or a list of these",
        )


def _from_array(array: "np.ndarray[Any, Any] | Tensor") -> bytes:
    """uint8, or floats in 0..1: (height, width) or (height, width, channels); of a tensor, channels come first."""
    if isinstance(array, Tensor):
        pixels = array.detach().cpu().numpy()
        pixels = pixels.transpose(1, 2, 0) if pixels.ndim == 3 else pixels
    else:
        pixels = array
    if pixels.ndim == 3 and pixels.shape[2] == 1:
        pixels = pixels[:, :, 0]
    if not (pixels.ndim == 2 or (pixels.ndim == 3 and pixels.shape[2] in (3, 4))) or 0 in pixels.shape:
        raise UserError(
            f"an image cannot have the shape {tuple(array.shape)}",
            why="arrays are (height, width) or (height, width, channels); tensors (channels, height, width)",
            remedy="give 1, 3 or 4 channels",
        )
    if np.issubdtype(pixels.dtype, np.floating):
        if not (np.all(pixels >= 0) and np.all(pixels <= 1)):
            raise UserError(
                "the pixels of an image are not in 0..1",
                why=f"floats from {pixels.min():g} to {pixels.max():g}; were they normalised?",
                remedy="give uint8 pixels, or floats in 0..1",
            )
        pixels = np.rint(pixels * 255).astype(np.uint8)
    if pixels.dtype != np.uint8:
        raise UserError(
            f"the pixels of an image cannot be {pixels.dtype}", remedy="give uint8 pixels, or floats in 0..1"
        )
    return _png(Image.fromarray(np.ascontiguousarray(pixels)))


def _png(image: Image.Image) -> bytes:
    """Without loss, so that an image in memory is decoded exactly as its file would be."""
    out = BytesIO()
    if image.mode not in _AS_PNG:
        image = _eight_bits(image) if is_deep(image) else image.convert("RGB")
    image.save(out, "PNG", compress_level=1)
    return out.getvalue()


def _eight_bits(image: Image.Image) -> Image.Image:
    try:
        return eight_bits(image)
    except OutOfRange as error:
        raise UserError(
            "the pixels of an image cannot be used", why=str(error), remedy="give uint8 pixels, or floats in 0..1"
        ) from error
