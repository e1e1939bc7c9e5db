"""How a dataset keeps its images, found from the first of them: compressed, or as pixels of some shape and type."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from phalanx.config.schema import DataConfig
from phalanx.data.base import Pixels
from phalanx.data.decode.images import BadImage, format_of
from phalanx.data.decode.ranges import OutOfRange
from phalanx.data.sources.pixel_layout import (
    CHANNELS,
    Fit,
    PixelShape,
    PixelType,
    Values,
    fits,
    given_shape,
    is_planar,
    looks_planar,
    shape_of,
    type_of,
    values_of,
)

PROBED = 16  # images that are tried as compressed ones
HOW_TO_SAY = "name the field of the image with data.image_field; raw pixels may need data.image_shape, as [28,28,1]"


class NoImage(Exception):
    """A field holds no image that can be read: why, and what to do."""

    def __init__(self, why: str, remedy: str = "") -> None:
        self.why, self.remedy = why, remedy
        super().__init__(why)


@dataclass(frozen=True)
class Layout:
    """How values become pixels. Without a shape, each image comes with its own sizes."""

    type: PixelType
    shape: PixelShape | None
    channels: int | None = None  # where an image's own sizes are only its height and width
    planar: bool = False
    words: str = ""  # for the user

    def pixels(self, values: Values, sizes: Sequence[int] = ()) -> Pixels:
        """One image. Raises BadImage."""
        own = sizes if self.channels is None else (*sizes, self.channels)
        shape = self.shape or shape_of(own, self.planar)
        if shape is None or values.size != shape.count or values.dtype != self.type.dtype:
            stored = f"{values.size:,} values of type {values.dtype.name}"
            raise BadImage(f"it has {stored}, and should have {shape or 'a shape'} of {self.type.dtype.name}")
        try:
            return self.type.pixels(values, shape)
        except OutOfRange as error:
            raise BadImage(str(error)) from error

    def pixels_of_bytes(self, data: bytes, sizes: Sequence[int] = ()) -> Pixels:
        """The same from raw bytes."""
        if len(data) % self.type.dtype.itemsize:
            raise BadImage(f"it has {len(data):,} bytes, which are not whole values of {self.type.dtype.name}")
        return self.pixels(np.frombuffer(data, self.type.dtype), sizes)


def compressed_format(images: Sequence[bytes], config: DataConfig) -> str | None:
    """The format of images that are compressed; None if most of them are not."""
    formats = [form for form in map(format_of, images[:PROBED]) if form]
    if 2 * len(formats) < len(images[:PROBED]) or not formats:
        return None
    form = max(set(formats), key=formats.count)
    if config.image_shape:
        raise NoImage(f"its images are compressed ({form}), and data.image_shape is of raw pixels", "leave it out")
    return form


def layout_of_arrays(arrays: Sequence[Values], config: DataConfig) -> Layout:
    """The layout of images that are arrays with a shape each."""
    shape = shape_of(arrays[0].shape, is_planar(config))
    if shape is None or len({array.dtype for array in arrays}) > 1:
        sizes = "×".join(str(size) for size in arrays[0].shape)
        raise NoImage(f"it holds arrays of {sizes}, and an image is height × width × 1, 3 or 4 channels")
    kind = _typed(arrays)
    return Layout(kind, None, planar=is_planar(config), words=f"{shape} {kind}")


def find_layout(
    images: Sequence[bytes] | Sequence[Values], sizes: Sequence[Sequence[int]], config: DataConfig
) -> Layout:
    """The layout of raw bytes or flat lists: from the settings, from `sizes` beside each, or from their length."""
    planar, lengths = is_planar(config), [len(image) for image in images]
    given, own = given_shape(config), any(sizes)
    found: list[tuple[Fit, int | None]] = []  # ways to read them, and the number of channels that nothing says
    if given is not None:
        found, own = [(fit, None) for fit in fits(lengths[0], given, planar)], False
    elif own:
        found = list(_fits_of_sizes(lengths, sizes, planar))
    if not found and given is None:  # sizes that do not fit are those before a resize
        own = False
        found = [(fit, None) for fit in fits(lengths[0], None, planar)] if len(set(lengths)) == 1 else []
    readable = list(_readable(found, images, known=own or given is not None))
    if len(readable) != 1:
        unit = "bytes" if isinstance(images[0], bytes) else "numbers"
        raise _not_one(unit, lengths, [fit for fit, _, _ in readable] or [fit for fit, _ in found], given)
    fit, channels, values = readable[0]
    kind = _typed(values)
    words = f"{'of several sizes' if own and len(set(lengths)) > 1 else fit.shape} {kind}"
    if config.image_layout is None and given is None and fit.shape.channels > 1 and not fit.shape.planar:
        same = len(set(lengths)) == 1 and looks_planar(values, fit.shape)
        look = "they look channel by channel; if they are" if same else "if they come channel by channel"
        words += f", channels last; {look}: data.image_layout=chw"
    return Layout(kind, None if own else fit.shape, channels, fit.shape.planar, words)


def _readable(
    found: Sequence[tuple[Fit, int | None]], images: Sequence[bytes] | Sequence[Values], *, known: bool
) -> Iterable[tuple[Fit, int | None, Sequence[Values]]]:
    """The ways to read images in which all values are pixels. A square that only length suggests is of bytes."""
    data = [image for image in images if isinstance(image, bytes)]
    blank = not any(any(image) for image in data)
    for fit, channels in found:
        if not data:
            if fit.value_bytes == 1:
                yield fit, channels, [np.asarray(image) for image in images]
            continue
        if not known and fit.value_bytes > 1 and (blank or all(each.value_bytes > 1 for each, _ in found)):
            continue
        values = values_of(data, fit.value_bytes)
        if values is not None:
            yield fit, channels, values


def _fits_of_sizes(
    lengths: Sequence[int], sizes: Sequence[Sequence[int]], planar: bool
) -> Iterable[tuple[Fit, int | None]]:
    """The ways to read images that come with their height and width, and perhaps their channels."""
    for channels in CHANNELS if max(map(len, sizes)) == 2 else (None,):
        ways: list[set[int]] = []
        shape = None
        for length, own in zip(lengths, sizes, strict=True):
            shape = shape_of(own if channels is None else (*own, channels), planar)
            ways.append({fit.value_bytes for fit in fits(length, shape, planar)} if shape else set())
        if shape is not None:
            for value_bytes in sorted(set.intersection(*ways)):
                yield Fit(shape, value_bytes), channels


def _typed(values: Sequence[Values]) -> PixelType:
    try:
        return type_of(values)
    except OutOfRange as error:
        raise NoImage(str(error), "store pixels before they are normalised") from error


def _not_one(unit: str, lengths: Sequence[int], found: Sequence[Fit], given: PixelShape | None) -> NoImage:
    length = f"{lengths[0]:,}" if len(set(lengths)) == 1 else f"{min(lengths):,} to {max(lengths):,}"
    if given is not None:
        wide = " of 1, 2, 4 or 8 bytes" if unit == "bytes" else ""
        return NoImage(
            f"an image has {length} {unit}, and data.image_shape {given} needs {given.count:,}{wide}",
            "correct data.image_shape: height, width and channels as they are stored",
        )
    if found:
        ways = " or ".join(dict.fromkeys(str(fit) for fit in found))
        settings = " or ".join(dict.fromkeys(fit.shape.setting for fit in found))
        return NoImage(f"its {length} {unit} can be {ways}", f"say the shape: {settings}")
    compressed = "no compressed image, and " if unit == "bytes" else ""
    return NoImage(f"its {length} {unit} are {compressed}no square of grey or colour pixels", HOW_TO_SAY)
