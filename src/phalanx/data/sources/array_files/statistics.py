"""The range, mean and deviation of a dataset's images, from some of them."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from phalanx.data.decode.ranges import OutOfRange, Scale, range_of, scale_of
from phalanx.data.sources.array_files.entry import Values
from phalanx.data.sources.array_files.source import ArrayPart, StoredSource, stacked
from phalanx.data.sources.arrays import STATISTICS_IMAGES, as_channels, statistics
from phalanx.errors import UserError

SAMPLE_BYTES = 64 << 20  # of values that are looked at
FEWEST_IMAGES = 64


def dataset_scale(splits: Sequence[Sequence[ArrayPart]]) -> tuple[Scale, tuple[str, ...]]:
    """The rule for the values of all splits, by some of their images, and a note that says it."""
    first = splits[0][0].entry
    dtype = first.dtype
    if dtype.kind not in "biuf":
        raise UserError(
            f"the array {first.name} of {first.file.path} does not hold pixels",
            why=f"its values are of type {first.kind}",
            remedy="save images as uint8; or name another array with data.image_field",
        )
    if dtype in (np.uint8, np.bool_):
        return scale_of(dtype, 0, 1), ()
    ends = [range_of([values]) for parts in splits for values in _sample(parts)]
    good = [pair for pair in ends if np.isfinite(pair).all()] or ends
    low, high = min(pair[0] for pair in good), max(pair[1] for pair in good)
    try:
        scale = scale_of(dtype, low, high)
    except OutOfRange as error:
        raise UserError(
            f"the values of {first.name} of {first.file.path} are no pixels",
            why=str(error),
            remedy="save the images before normalisation (data.mean and data.std do that): uint8, or floats 0 … 1",
        ) from error
    return scale, (f"pixels: {dtype.name}, {scale}",)


def _sample(parts: Sequence[ArrayPart]) -> Values:
    """The values of evenly spaced images."""
    total, row_bytes = sum(part.entry.shape[0] for part in parts), max(1, parts[0].entry.row_bytes)
    count = min(total, STATISTICS_IMAGES, max(FEWEST_IMAGES, SAMPLE_BYTES // row_bytes))
    return stacked(parts, [number * total // count for number in range(count)])


def with_statistics(source: StoredSource) -> StoredSource:
    """With the mean and deviation of its images, or of some of them."""
    good = []
    for values in _sample(source.parts):
        try:
            good.append(source.scale.apply(source.layout.arranged(values[None]))[0])
        except OutOfRange:
            continue  # training and evaluation report it
    images = as_channels(np.stack(good), source.channels, source.description)
    mean, std = statistics(images, np.arange(len(images)))
    return replace(source, mean=mean, std=std)
