"""How the image of a tf.train.Example is kept: compressed, as raw bytes, as a list of numbers, or as a tensor."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

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
from phalanx.data.sources.shards.tf_example import Feature, array_of, bytes_of, kind_of, numbers_of, tensor_of

Example = Mapping[str, Feature]

PROBED = 16  # images that are tried as compressed ones
HEIGHTS = ("height", "image/height", "image_height", "img_height", "rows", "num_rows", "h")
WIDTHS = ("width", "image/width", "image_width", "img_width", "cols", "columns", "num_cols", "w")
DEPTHS = (
    *("depth", "image/channels", "image/depth", "image_depth", "image_channels", "img_depth", "channels"),
    *("num_channels", "channel", "c"),
)
SHAPES = ("shape", "image/shape", "image_shape", "img_shape", "image/dims", "dims")
HOW_TO_SAY = (
    "name the field of the image with data.image_field, or say the shape of raw pixels: data.image_shape=[28,28,1]"
)


class NoImage(Exception):
    """A field holds no image that can be read: why, and what to do."""

    def __init__(self, why: str, remedy: str = "") -> None:
        self.why, self.remedy = why, remedy
        super().__init__(why)


@dataclass(frozen=True)
class PixelFields:
    """How the pixels of a record are read. The shape is the same for all, or in the fields `sizes` of each record."""

    kind: Literal["bytes", "numbers", "tensor"]
    type: PixelType
    shape: PixelShape | None
    sizes: tuple[str, ...]
    channels: int | None  # where `sizes` are only height and width
    planar: bool

    def read(self, example: Example, name: str) -> Pixels:
        """The pixels of a record. Raises BadImage."""
        values, shape = self._values(example[name]), self.shape or self._own_shape(example)
        if self.kind == "tensor":
            shape = shape_of(values.shape, self.planar)
        if shape is None or values.size != shape.count:
            raise BadImage(f"its record has {values.size:,} values, and its shape is {shape or 'missing'}")
        try:
            return self.type.pixels(values, shape)
        except OutOfRange as error:
            raise BadImage(str(error)) from error

    def _values(self, feature: Feature) -> Values:
        if self.kind == "numbers":
            values: Values | None = array_of(feature)
        else:
            data = bytes_of(feature)
            if len(data) != 1:
                raise BadImage(f"its record has {len(data)} images")
            if self.kind == "tensor":
                values = tensor_of(data[0])
            else:
                whole = len(data[0]) % self.type.dtype.itemsize == 0
                values = np.frombuffer(data[0], self.type.dtype) if whole else None
        if values is None or values.dtype != self.type.dtype:
            raise BadImage(f"its record has no {self.type.dtype.name} pixels")
        return values

    def _own_shape(self, example: Example) -> PixelShape | None:
        sizes = sizes_in(example, self.sizes)
        return shape_of(sizes if self.channels is None else (*sizes, self.channels), self.planar)


def pixel_fields(name: str, examples: Sequence[Example], config: DataConfig) -> tuple[PixelFields | None, str]:
    """(how a field's pixels are read, in words); None if its images are compressed. Raises NoImage."""
    with_it = [example for example in examples if name in example and kind_of(example[name]) != "nothing"]
    kinds = sorted({kind_of(example[name]) for example in with_it})
    if len(kinds) != 1:
        raise NoImage(f"it lists {' and '.join(kinds) or 'nothing'}")
    if kinds != ["bytes"]:
        arrays = [array_of(example[name]) for example in with_it]
        return _laid_out("numbers", arrays, with_it, config)
    data = [bytes_of(example[name]) for example in with_it]
    if any(len(values) != 1 for values in data):
        raise NoImage(f"it has {max(map(len, data))} texts in a record, and an image is one")
    images = [values[0] for values in data]
    formats = [form for form in map(format_of, images[:PROBED]) if form]
    if 2 * len(formats) >= len(images[:PROBED]):
        form = max(set(formats), key=formats.count)
        if config.image_shape:
            raise NoImage(f"its images are compressed ({form}), and data.image_shape is of raw pixels", "leave it out")
        return None, form
    tensors = [tensor for tensor in map(tensor_of, images) if tensor is not None]
    if len(tensors) == len(images):
        return _of_tensors(tensors, config)
    return _laid_out("bytes", images, with_it, config)


def _of_tensors(tensors: Sequence[Values], config: DataConfig) -> tuple[PixelFields, str]:
    shape = shape_of(tensors[0].shape, is_planar(config))
    if shape is None or len({tensor.dtype for tensor in tensors}) > 1:
        sizes = "×".join(str(size) for size in tensors[0].shape)
        raise NoImage(f"it holds tensors of {sizes}, which are not (height, width, 1, 3 or 4)")
    kind = _typed(tensors)
    return PixelFields("tensor", kind, None, (), None, shape.planar), f"tensor {shape} {kind}"


def _laid_out(
    kind: Literal["bytes", "numbers"],
    images: Sequence[bytes] | Sequence[Values],
    examples: Sequence[Example],
    config: DataConfig,
) -> tuple[PixelFields, str]:
    """Pixels without a shape of their own: it is in the settings, in other fields, or follows from their number."""
    planar, lengths = is_planar(config), [len(image) for image in images]
    given, sizes = given_shape(config), size_fields(examples)
    found: list[tuple[Fit, int | None]] = []  # ways to read them, and the number of channels that no field says
    if given is not None:
        found = [(fit, None) for fit in fits(lengths[0], given, planar)]
    elif sizes and (of_fields := list(_fits_of_fields(lengths, examples, sizes, planar))):
        found = of_fields
    else:
        sizes = ()
        found = [(fit, None) for fit in fits(lengths[0], None, planar)] if len(set(lengths)) == 1 else []
    if kind == "numbers":
        found = [(fit, channels) for fit, channels in found if fit.value_bytes == 1]
        readable: list[tuple[Fit, int | None, Sequence[Values]]] = [
            (fit, channels, [np.asarray(image) for image in images]) for fit, channels in found
        ]
    else:
        readable = list(_readable(found, [bytes(image) for image in images], known=bool(given or sizes)))
    if len(readable) != 1:
        raise _not_one(kind, lengths, [fit for fit, _, _ in readable] or [fit for fit, _ in found], given)
    fit, channels, values = readable[0]
    of_type = _typed(values)
    shape = None if given is None and sizes else fit.shape
    size = f"of the sizes in {', '.join(sizes)}" if shape is None and len(set(lengths)) > 1 else str(fit.shape)
    words = f"{'raw' if kind == 'bytes' else 'list of'} {size} {of_type}"
    if config.image_layout is None and given is None and fit.shape.channels > 1 and not fit.shape.planar:
        same = len(set(lengths)) == 1 and looks_planar(values, fit.shape)
        look = "they look channel by channel; if they are" if same else "if they come channel by channel"
        words += f", channels last; {look}: data.image_layout=chw"
    return PixelFields(kind, of_type, shape, sizes if shape is None else (), channels, fit.shape.planar), words


def _readable(
    found: Iterable[tuple[Fit, int | None]], images: Sequence[bytes], *, known: bool
) -> Iterable[tuple[Fit, int | None, Sequence[Values]]]:
    """The ways to read raw bytes in which all values are pixels. A square that only length suggests is of bytes."""
    found = list(found)
    blank = not any(any(image) for image in images)
    for fit, channels in found:
        if not known and fit.value_bytes > 1 and (blank or all(each.value_bytes > 1 for each, _ in found)):
            continue
        values = values_of(images, fit.value_bytes)
        if values is not None:
            yield fit, channels, values


def _fits_of_fields(
    lengths: Sequence[int], examples: Sequence[Example], sizes: tuple[str, ...], planar: bool
) -> Iterable[tuple[Fit, int | None]]:
    """The ways to read pixels whose height and width are in fields, and perhaps their channels."""
    for channels in (None,) if len(sizes) != 2 else CHANNELS:
        ways: list[set[int]] = []
        shape = None
        for length, example in zip(lengths, examples, strict=True):
            own = sizes_in(example, sizes)
            shape = shape_of(own if channels is None else (*own, channels), planar)
            ways.append({fit.value_bytes for fit in fits(length, shape, planar)} if shape else set())
        if shape is not None:
            for value_bytes in sorted(set.intersection(*ways)):
                yield Fit(shape, value_bytes), channels


def size_fields(examples: Sequence[Example]) -> tuple[str, ...]:
    """The fields with the size of an image: its shape; height, width and depth; or height and width."""
    there = {name for example in examples for name, value in example.items() if numbers_of(value)}
    for names in SHAPES:
        if names in there:
            return (names,)
    height, width, depth = (
        next((name for name in names if name in there), None) for names in (HEIGHTS, WIDTHS, DEPTHS)
    )
    if height is None or width is None:
        return ()
    return (height, width) if depth is None else (height, width, depth)


def sizes_in(example: Example, names: Sequence[str]) -> tuple[int, ...]:
    """The sizes that a record's fields say; none if one is missing."""
    values = [numbers_of(example[name]) if name in example else () for name in names]
    if any(not each or (len(names) > 1 and len(each) != 1) for each in values):
        return ()
    return tuple(int(size) for each in values for size in each)


def _typed(values: Sequence[Values]) -> PixelType:
    try:
        return type_of(values)
    except OutOfRange as error:
        raise NoImage(str(error), "store pixels before they are normalised") from error


def _not_one(kind: str, lengths: Sequence[int], found: Sequence[Fit], given: PixelShape | None) -> NoImage:
    unit = "bytes" if kind == "bytes" else "numbers"
    length = f"{lengths[0]:,}" if len(set(lengths)) == 1 else f"{min(lengths):,} to {max(lengths):,}"
    if given is not None:
        return NoImage(
            f"an image has {length} {unit}, and data.image_shape {given} needs {given.count:,} of 1, 2, 4 or 8 bytes"
            if kind == "bytes"
            else f"an image has {length} {unit}, and data.image_shape {given} needs {given.count:,}",
            "correct data.image_shape: height, width and channels as they are stored",
        )
    if found:
        ways = " or ".join(dict.fromkeys(str(fit) for fit in found))
        settings = " or ".join(dict.fromkeys(fit.shape.setting for fit in found))
        return NoImage(f"its {length} {unit} can be {ways}", f"say the shape: {settings}")
    compressed = "no compressed image, and " if kind == "bytes" else ""
    return NoImage(f"its {length} {unit} are {compressed}no square of grey or colour pixels", HOW_TO_SAY)
