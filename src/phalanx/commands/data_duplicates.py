"""Copies in the data, for `phalanx data info`: validation images that are also trained on, and images that repeat."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from phalanx.commands.data_settings import portable, write_out
from phalanx.data.duplicates import Copy, copies_across, copies_within, fingerprints
from phalanx.data.sources.encoded import EncodedSource
from phalanx.data.sources.labelled import Labelled, Part
from phalanx.machine.cores import cores
from phalanx.observe.progress import progress
from phalanx.observe.tables import printable, tab_separated

# Samples that are compared without being asked: about ten seconds.
MAX_ENCODED, MAX_IN_MEMORY = 20_000, 100_000
SHOWN = 3


@dataclass(frozen=True)
class Duplicates:
    """The copies that were found: of validation samples among the training samples, and within each split."""

    across: list[Copy]  # of val in train
    within: dict[Part, list[list[int]]]


def find_duplicates(splits: Mapping[Part, Labelled], console: Console, *, all_samples: bool) -> Duplicates | None:
    """Compare all samples, with progress. None for a large dataset, unless `all_samples`."""
    count = sum(map(len, splits.values()))
    encoded = any(isinstance(split, EncodedSource) for split in splits.values())
    if count > (MAX_ENCODED if encoded else MAX_IN_MEMORY) and not all_samples:
        return None
    with progress(console, "compared", count) as advance:
        known = {part: fingerprints(split, cores(), advance) for part, split in splits.items()}
    across = copies_across(known["val"], known["train"]) if "val" in known else []
    return Duplicates(across, {part: copies_within(one) for part, one in known.items()})


def write_leaked(path: Path, found: Duplicates, splits: Mapping[Part, Labelled]) -> None:
    """The training samples that are also validation samples, as a list for data.quarantine."""
    lines = []
    for copy in found.across:
        what = "the same bytes as" if copy.exact else "looks the same as"
        pair = (portable(splits["train"].name(copy.other)), f"{what} {splits['val'].name(copy.index)} of validation")
        lines.append(printable(tab_separated(pair)))
    write_out(path, "".join(f"{line}\n" for line in dict.fromkeys(lines)).encode())


def rows_of(found: Duplicates | None, splits: Mapping[Part, Labelled], listed: Path | None) -> dict[str, str]:
    """What to print, by title."""
    if found is None:
        return {"duplicates": "not looked for in so many samples: --duplicates FILE compares them all"}
    rows = {}
    if "val" in splits:
        rows["duplicates"] = _across(found.across, splits)
        if found.across:
            rows["to train without them"] = (
                f"data.quarantine={listed}" if listed else "--duplicates FILE writes a list for data.quarantine"
            )
    for part, groups in found.within.items():
        if groups:
            rows[f"repeated in {part}"] = _within(groups, splits[part])
    return rows or {"duplicates": "none"}


def as_json(found: Duplicates | None, splits: Mapping[Part, Labelled]) -> dict[str, Any] | None:
    if found is None:
        return None
    return {
        "across": [
            {"val": splits["val"].name(copy.index), "train": splits["train"].name(copy.other), "exact": copy.exact}
            for copy in found.across
        ],
        "within": {
            part: [[splits[part].name(index) for index in group] for group in groups]
            for part, groups in found.within.items()
        },
    }


def _across(copies: list[Copy], splits: Mapping[Part, Labelled]) -> str:
    if not copies:
        return "no validation image is also a training image"
    exact = sum(copy.exact for copy in copies)
    counts = [f"{exact:,} with the same bytes"] * bool(exact)
    counts += [f"{len(copies) - exact:,} that look the same"] * (len(copies) > exact)
    pairs = "; ".join(
        f"{splits['val'].name(copy.index)} = {splits['train'].name(copy.other)}" for copy in copies[:SHOWN]
    )
    more = " …" if len(copies) > SHOWN else ""
    return (
        f"{len(copies):,} of {len(splits['val']):,} validation images are also training images "
        f"({' and '.join(counts)}): {pairs}{more}"
    )


def _within(groups: list[list[int]], split: Labelled) -> str:
    copies = sum(len(group) - 1 for group in groups)
    differing = [group for group in groups if len(np.unique(split.labels[group], axis=0)) > 1]
    shown = (differing or groups)[0]
    labels = f", {len(differing):,} of them under different classes" if differing else ""
    return f"{copies:,} with the same bytes as another one{labels}: {' = '.join(split.name(i) for i in shown[:SHOWN])}"
