"""The classes of a dataset with their numbers of samples, as a table with a bar chart."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from rich.console import Console

from phalanx.data.sources.labelled import Labelled, Part
from phalanx.observe.tables import print_table

MAX_SHOWN = 24  # classes
BAR = 30  # characters of the longest bar
EIGHTHS = " ▏▎▍▌▋▊▉"
NAMED = 6  # classes in the first lines

Counts = list[dict[str, Any]]  # of each class: its name, and its samples by split


def count_classes(splits: Mapping[Part, Labelled]) -> Counts:
    """Samples of each class in each split; a sample of several classes counts in each."""
    classes = next(iter(splits.values())).classes
    numbers = {part: _samples(split, len(classes)) for part, split in splits.items()}
    return [{"name": name, **{part: numbers[part][i] for part in splits}} for i, name in enumerate(classes)]


def _samples(split: Labelled, num_classes: int) -> list[int]:
    counts = split.labels.sum(axis=0) if split.multi_label else np.bincount(split.labels, minlength=num_classes)
    found: list[int] = counts.tolist()
    return found


def print_counts(console: Console, counts: Counts, parts: list[Part]) -> None:
    """A row for each class; of many, the largest and the smallest."""
    longest = max(one[parts[0]] for one in counts)
    shown, between = _chosen(counts, parts[0])
    rows = [(one["name"], *(f"{one[part]:,}" for part in parts), bar(one[parts[0]], longest)) for one in shown]
    if between:
        left_out = len(counts) - len(shown)
        rows.insert(between, (f"… {left_out:,} more in between (--json lists all)", *("" for _ in parts), ""))
    print_table(console, ("class", *parts, f"{parts[0]} as bars"), rows, numbers=parts)


def _chosen(counts: Counts, part: Part) -> tuple[Counts, int]:
    """(the classes to show, where others are left out between them)."""
    if len(counts) <= MAX_SHOWN:
        return counts, 0
    by_size = sorted(counts, key=lambda one: -one[part])
    half = MAX_SHOWN // 2
    return [*by_size[:half], *by_size[-half:]], half


def bar(count: int, longest: int) -> str:
    """A bar of up to 30 characters, to an eighth of one; something is seen of every sample."""
    eighths = max(round(8 * BAR * count / max(1, longest)), int(count > 0))
    return "█" * (eighths // 8) + EIGHTHS[eighths % 8].strip()


def describe_classes(counts: Counts, parts: list[Part]) -> str:
    """`10, 20 to 23 images each in train, 2 in val: ape, cat, dog …`"""
    spreads = [f"{_range([one[part] for one in counts])} in {part}" for part in parts]
    names = ", ".join(" ".join(one["name"].split()) for one in counts[:NAMED]) + (" …" if len(counts) > NAMED else "")
    return f"{len(counts):,} ({' and '.join(spreads)} each): {names}"


def _range(numbers: list[int]) -> str:
    low, high = min(numbers), max(numbers)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"
