"""Opening arrays: the arrays of each split in a file or folder, as a Source."""

from collections.abc import Sequence
from functools import partial
from itertools import accumulate
from pathlib import Path

import numpy as np

from phalanx.data.sources.array_files.choose import Choice, Chosen
from phalanx.data.sources.array_files.entry import ArrayEntry
from phalanx.data.sources.array_files.find_arrays import ArrayKind, find_arrays
from phalanx.data.sources.array_files.hdf5 import EncodedRows, Hdf5Entry
from phalanx.data.sources.array_files.labels import ArrayLabels, as_known, named, read_labels
from phalanx.data.sources.array_files.layout import checked_layout
from phalanx.data.sources.array_files.rows import OpenRows, open_rows
from phalanx.data.sources.array_files.source import ArrayPart, EncodedArraySource, StoredSource
from phalanx.data.sources.array_files.statistics import dataset_scale, with_statistics
from phalanx.data.sources.encoded import EncodedSource
from phalanx.data.sources.folders import suggested
from phalanx.data.sources.labelled import Part
from phalanx.data.sources.open_request import OpenRequest


def open_arrays(kind: ArrayKind, path: Path, part: Part, request: OpenRequest) -> EncodedSource | None:
    """The training part of arrays, or all of them; or the validation part, None where there is none."""
    found = find_arrays(kind, path, request.config.image_field, request.config.label_field)
    chosen = found.train if part == "train" else found.val
    if chosen is None:
        return None
    labels = _labels(chosen, found.choice, request, path)
    note = _note(chosen, part, found.choice if part == "train" else None)
    if _holds_encoded(chosen.images[0]):
        return _encoded(chosen, labels, request, note)
    return _stored(chosen, [split for split in (found.train, found.val) if split], labels, request, note)


def _labels(chosen: Chosen, choice: Choice, request: OpenRequest, where: Path) -> ArrayLabels:
    config = request.config
    if chosen.labels is None:
        counts = [entry.shape[0] for entry in chosen.images]
        return ArrayLabels(np.repeat(np.arange(len(counts), dtype=np.int64), counts), chosen.classes)
    found = read_labels(chosen.labels, multi_label=config.multi_label, element=config.label_element)
    return as_known(named(found, choice.names), request.classes, str(where))


def _stored(
    chosen: Chosen, splits: Sequence[Chosen], labels: ArrayLabels, request: OpenRequest, note: str
) -> StoredSource:
    layout = checked_layout(chosen.images[0])
    channels = layout.channels if request.channels is None else request.channels
    opened = [open_rows(entry) for entry in chosen.images]
    parts = _parts(chosen, opened)
    # The splits share one rule, so that the same value is the same grey in both.
    others = () if parts[0].entry.dtype == np.uint8 else (split for split in splits if split is not chosen)
    scale, told = dataset_scale([parts, *(_parts(split, list(map(open_rows, split.images))) for split in others)])
    source = StoredSource(
        description=f"{_described(chosen)}, {len(labels.labels):,} × {layout.height}×{layout.width}×{channels}",
        classes=labels.classes,
        labels=labels.labels,
        channels=channels,
        image_size=max(layout.height, layout.width),
        mean=(),
        std=(),
        extent=(layout.height, layout.width),
        notes=(note, *told, *(line for rows in opened for line in rows.notes), *labels.notes),
        containers=_files(chosen),
        pool=request.pool,
        parts=parts,
        layout=layout,
        scale=scale,
        rows=np.arange(len(labels.labels), dtype=np.int64),
    )
    return with_statistics(source)


def _encoded(chosen: Chosen, labels: ArrayLabels, request: OpenRequest, note: str) -> EncodedArraySource:
    entry = chosen.images[0]
    suggestion = suggested(str(entry.file.path), request.channels)
    if isinstance(entry, Hdf5Entry) and entry.encoded:
        rows, notes = EncodedRows(entry), entry.file.notes
        read, part = rows.__getitem__, ArrayPart(entry, np.empty(0), 0)
    else:
        opened = open_rows(entry)
        part, notes = ArrayPart(entry, opened.rows, 0), opened.notes
        read = partial(_bytes_of, opened)
    return EncodedArraySource(
        description=f"{_described(chosen)}, {len(labels.labels):,} images in {len(labels.classes):,} classes",
        classes=labels.classes,
        labels=labels.labels,
        channels=suggestion.channels,
        image_size=suggestion.image_size,
        mean=suggestion.mean,
        std=suggestion.std,
        notes=(note, *notes, *labels.notes),
        containers=_files(chosen),
        pool=request.pool,
        part=part,
        read_row=read,
    )


def _bytes_of(opened: OpenRows, row: int) -> bytes:
    return np.asarray(opened.rows[row]).tobytes().rstrip(b"\0")


def _holds_encoded(entry: ArrayEntry) -> bool:
    return entry.holds_encoded or (entry.dtype.kind == "S" and len(entry.shape) == 1)


def _parts(chosen: Chosen, opened: Sequence[OpenRows]) -> list[ArrayPart]:
    starts = [0, *accumulate(entry.shape[0] for entry in chosen.images[:-1])]
    return [ArrayPart(*each) for each in zip(chosen.images, (one.rows for one in opened), starts, strict=True)]


def _files(chosen: Chosen) -> tuple[Path, ...]:
    arrays = (*chosen.images, *([chosen.labels] if chosen.labels else []))
    return tuple(dict.fromkeys(entry.file.path for entry in arrays))


def _described(chosen: Chosen) -> str:
    first = chosen.images[0]
    if len(chosen.images) > 1:
        return f"{len(chosen.images):,} arrays in {first.file.path.parent}"
    return str(first.file.path) if first.file.path.stem in first.name else f"{first.name} of {first.file.path}"


def _note(chosen: Chosen, part: Part, choice: Choice | None) -> str:
    """Which arrays are used, and which are not."""
    first, total = chosen.images[0], sum(entry.shape[0] for entry in chosen.images)
    shape = "" if _holds_encoded(first) else f" × {checked_layout(first)}"
    if chosen.labels is None:
        text = f"{total:,}{shape} in {len(chosen.images):,} files, a class each"
    else:
        text = f"{first.name} {total:,}{shape}, {chosen.labels.name}"
    unused = [entry.name for entry in choice.unused] if choice else []
    rest = f"; not used: {', '.join(unused[:6])}{' …' if len(unused) > 6 else ''}" if unused else ""
    return f"{'arrays' if part == 'train' else 'validation arrays'}: {text}{rest}"
