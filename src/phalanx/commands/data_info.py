"""`phalanx data info`: what a run would be trained and judged on, in words, numbers and pictures."""

import json
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image
from rich.console import Console

from phalanx.commands import data_duplicates
from phalanx.commands.data_contact import draw_contact_sheet
from phalanx.commands.data_counts import count_classes, describe_classes, print_counts
from phalanx.commands.data_settings import data_config, in_bytes, print_notes
from phalanx.config.schema import DataConfig
from phalanx.data.decode.images import BadImage, broken_means_bad
from phalanx.data.sources.arrays import ArraySource
from phalanx.data.sources.divide import divide
from phalanx.data.sources.encoded import EncodedSource
from phalanx.data.sources.formats import recognise
from phalanx.data.sources.labelled import Labelled, Part
from phalanx.data.sources.open import open_parts
from phalanx.data.sources.raw import RawSource
from phalanx.errors import UserError
from phalanx.machine.cores import cores
from phalanx.observe.progress import progress
from phalanx.observe.tables import print_line, print_rows

MAX_LOOKED_AT = 2000  # images of a split whose headers are read; of more, evenly spaced ones


@dataclass(frozen=True)
class Look:
    """(height, width), bytes and format of the images of a split that were examined."""

    sizes: npt.NDArray[np.int64]
    bytes: npt.NDArray[np.int64]
    kinds: Counter[str]
    looked_at: int
    of: int


def show_info(
    console: Console,
    source: str,
    settings: list[str],
    out: Path | None,
    *,
    duplicates: Path | None = None,
    as_json: bool = False,
) -> None:
    """Print the description; `out` gets a contact sheet, `duplicates` the training samples that are validated, too."""
    config = data_config(source, settings)
    aside = Console(stderr=True)
    splits, notes = _splits(config)
    looks = {part: _looked(split, aside) for part, split in splits.items()}
    copies = data_duplicates.find_duplicates(splits, aside, all_samples=duplicates is not None)
    if duplicates is not None and copies is not None:
        data_duplicates.write_leaked(duplicates, copies, splits)
    if out is not None:
        draw_contact_sheet(next(iter(splits.values())), out)
    form = recognise(source, config.remote_options)[0]
    about = _about(source, form, splits, looks, notes) | {
        "duplicates": data_duplicates.as_json(copies, splits),
        "contact_sheet": None if out is None else str(out),
    }
    if as_json:
        print_line(console, json.dumps(about, indent=1))
        return
    _print(console, about, splits)
    print_rows(console, data_duplicates.rows_of(copies, splits, duplicates))
    if out is not None:
        print_rows(console, {"contact sheet": str(out)})


def _splits(config: DataConfig) -> tuple[dict[Part, Labelled], list[str]]:
    """The splits as a run would have them: without a validation part, some of the training data is held out."""
    splits, notes = open_parts(config, threads=cores())
    if len(splits) == 2:
        return splits, notes
    (only,) = splits.values()
    try:
        train, val, _, more = divide(only, None, config)
    except UserError as error:  # it cannot be trained on, but it can be described
        return splits, [*notes, f"{error.what}: {error.why}; {error.remedy}"]
    return {"train": train, "val": val}, [*notes, *more]


def _looked(source: Labelled, console: Console) -> Look:
    if isinstance(source, RawSource):
        lengths = source.sizes.prod(axis=1) * source.channels
        return Look(source.sizes, lengths, Counter({"raw pixels": len(source)}), len(source), len(source))
    if isinstance(source, ArraySource):
        sizes = np.tile(np.array(source.images.shape[1:3], dtype=np.int64), (len(source), 1))
        lengths = sizes.prod(axis=1) * source.channels
        return Look(sizes, lengths, Counter({"pixels": len(source)}), len(source), len(source))
    assert isinstance(source, EncodedSource)
    count = min(len(source), MAX_LOOKED_AT)
    chosen = [i * len(source) // count for i in range(count)]
    with progress(console, "headers read", count) as advance, ThreadPoolExecutor(cores()) as pool:
        headers = []
        for header in pool.map(lambda index: _header(source, index), chosen):
            headers.append(header)
            advance(1)
    sizes = np.array([size for size, _, _ in headers if size is not None], dtype=np.int64).reshape(-1, 2)
    lengths = np.array([length for _, length, _ in headers], dtype=np.int64)
    return Look(sizes, lengths, Counter(kind for _, _, kind in headers), count, len(source))


def _header(source: EncodedSource, index: int) -> tuple[tuple[int, int] | None, int, str]:
    """(size, bytes, kind) of one image."""
    try:
        data = source.image(index)
        if not isinstance(data, bytes):
            return (data.shape[0], data.shape[1]), data.nbytes, "pixels"
        with broken_means_bad(), Image.open(BytesIO(data)) as image:
            return (image.height, image.width), len(data), image.format or "unknown"
    except (BadImage, OSError):  # `phalanx data verify` lists the errors
        return None, 0, "unreadable"


def _about(
    source: str, form: str, splits: Mapping[Part, Labelled], looks: Mapping[Part, Look], notes: list[str]
) -> dict[str, Any]:
    first = next(iter(splits.values()))
    return {
        "source": source,
        "format": form,
        "splits": {part: {"description": split.description, **_figures(looks[part])} for part, split in splits.items()},
        "channels": first.channels,
        "image_size": first.image_size,
        "classes": count_classes(splits),
        "notes": notes,
    }


def _figures(look: Look) -> dict[str, Any]:
    """Sizes as [height, width]; smallest, median and largest are computed for each side separately."""
    sides = look.sizes if len(look.sizes) else np.zeros((1, 2), dtype=np.int64)
    return {
        "samples": look.of,
        "looked_at": look.looked_at,
        "kinds": dict(look.kinds.most_common()),
        "smallest": sides.min(axis=0).tolist(),
        "median": np.median(sides, axis=0).astype(int).tolist(),
        "largest": sides.max(axis=0).tolist(),
        "bytes": round(float(look.bytes.mean()) * look.of),
    }


def _print(console: Console, about: Mapping[str, Any], splits: Mapping[Part, Labelled]) -> None:
    """First what a run would be trained on, judged on, and for; then notes, counts and sizes."""
    titles: dict[Part, str] = {"train": "trained on", "val": "judged on"}
    counts = about["classes"]
    lines = {titles[part]: about["splits"][part]["description"] for part in splits}
    print_rows(console, lines | {"classes": describe_classes(counts, list(splits))})
    print_notes(console, about["notes"])
    print_counts(console, counts, list(splits))
    rows = {
        "format": about["format"],
        "input": f"{about['channels']} channel(s), {about['image_size']} pixels a side (data.image_size sets it)",
    }
    for part, figures in about["splits"].items():
        rows[f"{part} images"] = _images(figures)
    print_rows(console, rows)


def _images(figures: Mapping[str, Any]) -> str:
    exact = figures["looked_at"] == figures["samples"]
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in figures["kinds"].items())
    sides = {name: "×".join(map(str, figures[name])) for name in ("smallest", "median", "largest")}
    sizes = ", ".join(f"{name} {size}" for name, size in sides.items())
    if sides["smallest"] == sides["largest"]:
        sizes = f"all {sides['median']}"
    about = "" if exact else f" (from {figures['looked_at']:,} of them)"
    size = f"{'' if exact else 'about '}{in_bytes(figures['bytes'])}"
    return f"{figures['samples']:,} of {size}; {kinds}; height×width: {sizes}{about}"
