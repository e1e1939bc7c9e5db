"""The image of a tf.train.Example: compressed, as raw bytes, as a list of numbers, or as a tensor."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from phalanx.config.schema import DataConfig
from phalanx.data.base import Pixels
from phalanx.data.decode.images import BadImage
from phalanx.data.sources.find_layout import Layout, NoImage, compressed_format, find_layout, layout_of_arrays
from phalanx.data.sources.shards.tf_example import Feature, array_of, bytes_of, kind_of, numbers_of, tensor_of

Example = Mapping[str, Feature]

HEIGHTS = ("height", "image/height", "image_height", "img_height", "rows", "num_rows", "h")
WIDTHS = ("width", "image/width", "image_width", "img_width", "cols", "columns", "num_cols", "w")
DEPTHS = (
    *("depth", "image/channels", "image/depth", "image_depth", "image_channels", "img_depth", "channels"),
    *("num_channels", "channel", "c"),
)
SHAPES = ("shape", "image/shape", "image_shape", "img_shape", "image/dims", "dims")


@dataclass(frozen=True)
class PixelFields:
    """How the pixels of a record are read; `sizes` are the fields with the shape of each, if they have one."""

    kind: Literal["bytes", "numbers", "tensor"]
    layout: Layout
    sizes: tuple[str, ...] = ()

    def read(self, example: Example, name: str) -> Pixels:
        """The pixels of a record. Raises BadImage."""
        sizes = sizes_in(example, self.sizes)
        if self.kind == "numbers":
            return self.layout.pixels(array_of(example[name]), sizes)
        data = bytes_of(example[name])
        if len(data) != 1:
            raise BadImage(f"its record has {len(data)} images")
        if self.kind == "bytes":
            return self.layout.pixels_of_bytes(data[0], sizes)
        tensor = tensor_of(data[0])
        if tensor is None:
            raise BadImage("its record has no tensor")
        return self.layout.pixels(tensor, tensor.shape)


def pixel_fields(name: str, examples: Sequence[Example], config: DataConfig) -> tuple[PixelFields | None, str]:
    """(how a field's pixels are read, in words); None if its images are compressed. Raises NoImage."""
    with_it = [example for example in examples if name in example and kind_of(example[name]) != "nothing"]
    kinds = sorted({kind_of(example[name]) for example in with_it})
    if len(kinds) != 1:
        raise NoImage(f"it lists {' and '.join(kinds) or 'nothing'}")
    names = size_fields(with_it)
    sizes = [sizes_in(example, names) for example in with_it]
    if kinds != ["bytes"]:
        layout = find_layout([array_of(example[name]) for example in with_it], sizes, config)
        return PixelFields("numbers", layout, names), f"list of {layout.words}"
    data = [bytes_of(example[name]) for example in with_it]
    if any(len(values) != 1 for values in data):
        raise NoImage(f"it has {max(map(len, data))} texts in a record, and an image is one")
    images = [values[0] for values in data]
    form = compressed_format(images, config)
    if form is not None:
        return None, form
    tensors = [tensor for tensor in map(tensor_of, images) if tensor is not None]
    if len(tensors) == len(images):
        layout = layout_of_arrays(tensors, config)
        return PixelFields("tensor", layout), f"tensor {layout.words}"
    layout = find_layout(images, sizes, config)
    return PixelFields("bytes", layout, names), f"raw {layout.words}"


def size_fields(examples: Sequence[Example]) -> tuple[str, ...]:
    """The fields with the size of an image: its shape; height, width and depth; or height and width."""
    there = {name for example in examples for name, value in example.items() if numbers_of(value)}
    for name in SHAPES:
        if name in there:
            return (name,)
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
