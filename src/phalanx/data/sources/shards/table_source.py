"""A Source of the rows of Parquet and Arrow files: which columns they are read from, and how these keep images."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from phalanx.config.schema import DataConfig
from phalanx.data.sources.find_layout import Layout, NoImage, compressed_format, find_layout, layout_of_arrays
from phalanx.data.sources.open_request import OpenRequest
from phalanx.data.sources.pixel_layout import is_planar, shape_of
from phalanx.data.sources.shards.arrow import ArrowReader, FirstRows, first_rows
from phalanx.data.sources.shards.classes import one_hot_class
from phalanx.data.sources.shards.hf_features import (
    Features,
    features_in,
    features_of_readme,
    image_column,
    label_column,
    names_of,
)
from phalanx.data.sources.shards.shard_source import ShardSource, describe, open_shards, with_pixels
from phalanx.data.sources.shards.tables import described, readable_tables, schema_of
from phalanx.errors import UserError

LOOKED_AT = 64  # rows, to find out how images and labels are kept
MAX_NAMED = 12  # columns, in a note


def open_tables(
    paths: list[Path], request: OpenRequest, features: Features | None = None, what: str | None = None
) -> ShardSource:
    """One dataset from files. `features` describe the columns where the files do not; `what` describes the data."""
    config, schema = request.config, schema_of(paths[0])
    beside = features or features_of_readme([paths[0].parent, paths[0].parent.parent])
    features = features_in(schema) or beside
    where = str(paths[0])
    image = image_column(where, schema, features, config.image_field)
    label = label_column(where, schema, features, config.label_field, lists=config.multi_label)
    shards = readable_tables(paths, [image, label])
    rows = first_rows(shards, image, label, LOOKED_AT)
    layout, kind = _image_kind(where, image, schema, rows, config)
    one_hot = _one_hot(rows, config)
    names = names_of(features, label) or names_of(beside, label)
    root = _root(where, image, paths[0], rows, config.root)
    are_classes = names is not None
    reader = ArrowReader(
        image, label, config.label_element, one_hot, layout, root, config.multi_label, are_classes=are_classes
    )
    given = names or ([str(number) for number in range(one_hot)] if one_hot else None)
    source = open_shards(what or describe("Hugging Face", paths), shards, reader, request, given=given)
    about = f"one-hot, {one_hot} classes" if one_hot else f"{len(names)} names" if names else ""
    others = [name for name in schema.names if name not in (image, label)]
    note = f"columns: image = {image} ({kind}), label = {label}" + (f" ({about})" if about else "")
    if others:
        more = " …" if len(others) > MAX_NAMED else ""
        note += f"; also in the table: {', '.join(others[:MAX_NAMED])}{more}"
    source = replace(source, notes=(*source.notes, note))
    return source if layout is None else with_pixels(source, request)


def _image_kind(
    where: str, column: str, schema: Any, rows: FirstRows | None, config: DataConfig
) -> tuple[Layout | None, str]:
    """(how pixels are read, in words); None if images are compressed."""
    if rows is None:  # the scan says what is wrong
        return None, "unknown"
    if not rows.images:
        return None, "paths of files"
    try:
        if rows.column.dtype is None:
            form = compressed_format(rows.images, config)
            if form is not None:
                return None, form
            layout = find_layout(rows.images, [], config)
            return layout, f"raw {layout.words}"
        layout = _of_lists(rows, rows.column.dtype, config)
        return layout, f"lists of {layout.words}"
    except NoImage as reason:
        raise UserError(
            f"the column {column!r} of {where} holds no image that can be read",
            why=f"{reason.why}. The columns are {described(schema)}",
            remedy=reason.remedy or "name the column of the image with data.image_field",
        ) from reason


def _of_lists(rows: FirstRows, dtype: np.dtype[Any], config: DataConfig) -> Layout:
    """The layout of numbers in lists: lists of lists have a shape of their own."""
    arrays = [np.frombuffer(image, dtype) for image in rows.images]
    sizes = rows.column.sizes
    if len(sizes) == 1 or config.image_shape:
        return find_layout(arrays, [], config)
    layout = layout_of_arrays([array.reshape(sizes) for array in arrays], config)
    return replace(layout, shape=shape_of(sizes, is_planar(config)))


def _one_hot(rows: FirstRows | None, config: DataConfig) -> int:
    """The length of one-hot labels, if all are lists of the same length with a single one."""
    if rows is None or config.label_element is not None or config.multi_label:
        return 0
    lists = [label for label in rows.labels if isinstance(label, list)]
    lengths = {len(label) for label in lists}
    if len(lists) < len(rows.labels) or len(lengths) != 1:
        return 0
    numbers = all(isinstance(value, int | float) for label in lists for value in label)
    return lengths.pop() if numbers and all(one_hot_class(label) is not None for label in lists) else 0


def _root(where: str, column: str, first: Path, rows: FirstRows | None, given: Path | None) -> Path:
    """Where the paths of images begin: at data.root, at a folder of the file, or where the user is."""
    folder = first.absolute().parent
    paths = rows.paths if rows is not None else []
    places: Sequence[Path] = (*([given.absolute()] if given else []), folder, *list(folder.parents)[:3], Path.cwd())
    for place in places:
        if any((place / path).is_file() for path in paths):
            return place
    if rows is not None and paths and not rows.images and not any(map(_is_absolute, paths)):
        raise UserError(
            f"the images that the column {column!r} of {where} names are not there",
            why=f"{paths[0]!r} is not a file seen from {', '.join(str(place) for place in places)}",
            remedy="say where they are with data.root, or name the column of the image with data.image_field",
        )
    return folder


def _is_absolute(path: str) -> bool:
    return Path(path).is_absolute()
