"""`phalanx data info`: describes a dataset in words, numbers and pictures."""

import json
import re
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

from phalanx.commands.data_contact import draw_contact_sheet
from phalanx.commands.data_settings import data_config, in_bytes, print_notes
from phalanx.data.decode.images import BadImage, broken_means_bad
from phalanx.data.sources.arrays import ArraySource
from phalanx.data.sources.encoded import EncodedSource
from phalanx.data.sources.formats import recognise
from phalanx.data.sources.labelled import Labelled, Part, class_counts
from phalanx.data.sources.open import open_parts
from phalanx.data.sources.raw import RawSource
from phalanx.machine.cores import cores
from phalanx.observe.progress import progress
from phalanx.observe.tables import print_line, print_rows, print_table

MAX_LOOKED_AT = 2000  # images of a split whose headers are read; of more, evenly spaced ones
MAX_SHOWN = 24  # classes


@dataclass(frozen=True)
class Look:
    """(height, width), bytes and format of the images of a split that were examined."""

    sizes: npt.NDArray[np.int64]
    bytes: npt.NDArray[np.int64]
    kinds: Counter[str]
    looked_at: int
    of: int


def show_info(console: Console, source: str, settings: list[str], out: Path | None, *, as_json: bool) -> None:
    """Print the description, and write a contact sheet."""
    config = data_config(source, settings)
    aside = Console(stderr=True)
    parts, notes = open_parts(config, threads=cores())
    looks = {part: _looked(split, aside) for part, split in parts.items()}
    sheet = out or Path(f"{_short_name(source)}-contact.png")
    first = next(iter(parts.values()))
    draw_contact_sheet(first, sheet)
    about = _about(source, recognise(source)[0], parts, looks, notes, sheet)
    if as_json:
        print_line(console, json.dumps(about, indent=1))
        return
    print_notes(console, notes)
    _print(console, about, parts)


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
        data = source.encoded(index)
        with broken_means_bad(), Image.open(BytesIO(data)) as image:
            return (image.height, image.width), len(data), image.format or "unknown"
    except (BadImage, OSError):  # `phalanx data verify` lists the errors
        return None, 0, "unreadable"


def _about(
    source: str,
    form: str,
    parts: Mapping[Part, Labelled],
    looks: Mapping[Part, Look],
    notes: list[str],
    sheet: Path,
) -> dict[str, Any]:
    classes = next(iter(parts.values())).classes
    counts = {part: class_counts(split.labels, len(classes)).tolist() for part, split in parts.items()}
    return {
        "source": source,
        "format": form,
        "splits": {part: {"description": parts[part].description, **_figures(looks[part])} for part in parts},
        "channels": next(iter(parts.values())).channels,
        "classes": [
            {"name": name, **{part: counts[part][number] for part in parts}} for number, name in enumerate(classes)
        ],
        "notes": notes,
        "contact_sheet": str(sheet),
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


def _print(console: Console, about: Mapping[str, Any], parts: Mapping[Part, Labelled]) -> None:
    classes = about["classes"]
    print_table(console, ("class", *parts), _class_rows(classes, list(parts)), numbers=parts)
    rows = {"data": about["source"], "format": about["format"], "classes": _spread(classes, list(parts))}
    for part, figures in about["splits"].items():
        exact = figures["looked_at"] == figures["samples"]
        about_text = "" if exact else f" (from {figures['looked_at']:,} of them)"
        sizes = ", ".join(f"{name} {'×'.join(map(str, figures[name]))}" for name in ("smallest", "median", "largest"))
        kinds = ", ".join(f"{count:,} {kind}" for kind, count in figures["kinds"].items())
        rows[part] = f"{figures['samples']:,} samples, {'' if exact else 'about '}{in_bytes(figures['bytes'])}"
        rows[f"{part} images"] = f"{kinds}; height×width: {sizes}{about_text}"
    print_rows(console, {**rows, "contact sheet": about["contact_sheet"]})


def _class_rows(classes: list[dict[str, Any]], parts: list[Part]) -> list[tuple[str, ...]]:
    """The classes with their counts; of many, the first and the last."""
    rows = [(one["name"], *(f"{one[part]:,}" for part in parts)) for one in classes]
    if len(rows) <= MAX_SHOWN:
        return rows
    half = MAX_SHOWN // 2
    between = (f"… {len(rows) - 2 * half:,} more (--json lists all)", *("" for _ in parts))
    return [*rows[:half], between, *rows[-half:]]


def _spread(classes: list[dict[str, Any]], parts: list[Part]) -> str:
    counts = {part: [one[part] for one in classes] for part in parts}
    spreads = [f"{min(numbers):,} to {max(numbers):,} in {part}" for part, numbers in counts.items()]
    return f"{len(classes):,}, each with {', '.join(spreads)}"


def _short_name(source: str) -> str:
    """`folder:/data/pets` → `pets`."""
    name = Path(source.rpartition(":")[2]).expanduser().resolve().name
    return re.sub(r"[^\w.-]+", "-", name) or "data"
