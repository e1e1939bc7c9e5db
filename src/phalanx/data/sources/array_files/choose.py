"""Which arrays are the images and labels of which split: by name, or by shape where names say nothing."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from phalanx.data.sources.array_files.entry import ArrayEntry, listed
from phalanx.data.sources.array_files.layout import layout_of
from phalanx.data.sources.array_files.naming import Role, role_of, split_of, without_split, words_of
from phalanx.data.sources.splits import WORDS
from phalanx.errors import UserError

SMALLEST_SIDE = 8  # of an image that is recognised by its shape alone
QUICK_DRAW = re.compile(r"^(full(_|%2F|-))?numpy_bitmap(_|%2F|-)")  # before the class in the names of its files


@dataclass(frozen=True)
class Chosen:
    """The arrays of one split. Without labels, each array of images is a class, with the name of its file."""

    images: tuple[ArrayEntry, ...]
    labels: ArrayEntry | None

    @property
    def classes(self) -> list[str]:
        return [class_of(entry) for entry in self.images]


@dataclass(frozen=True)
class Choice:
    """The arrays of the splits (train, val, test), the class names if there are any, and what is not used."""

    splits: dict[str, Chosen]
    names: ArrayEntry | None = None
    unused: list[ArrayEntry] = field(default_factory=list)


def class_of(entry: ArrayEntry) -> str:
    return QUICK_DRAW.sub("", entry.name.rpartition("/")[2])


def choose(where: Path, entries: Sequence[ArrayEntry], image_field: str | None, label_field: str | None) -> Choice:
    """The arrays to use. Raises UserError, with all that were found, if that is not clear."""
    by_split: dict[str | None, list[ArrayEntry]] = {}
    for entry in entries:
        by_split.setdefault(split_of(entry.name), []).append(entry)
    exact = next((entry for entry in entries if entry.name == image_field), None)
    if exact is not None and split_of(exact.name) is not None:
        # A name with its split is just that split: `test_images` to evaluate on.
        group = [entry for entry in by_split[split_of(exact.name)] if entry is exact or not _is(entry, "images")]
        by_split = {None: group}
    found = {split: _pair(where, group, entries, image_field, label_field) for split, group in by_split.items()}
    splits = {split or "train": pair for split, pair in found.items() if pair is not None and split != "train"}
    if pair := found.get("train"):
        splits["train"] = pair
    if not splits and image_field is None and label_field is None:
        splits = _by_file(entries)
    if not splits:
        what = "images and labels of one split" if _candidates(list(entries), "labels", None) else "labels"
        raise _unclear(where, entries, f"there are no {what} among them")
    used = {entry.name for pair in splits.values() for entry in (*pair.images, pair.labels) if entry is not None}
    rest = [entry for entry in entries if entry.name not in used]
    names = [entry for entry in rest if entry.is_text and len(entry.shape) == 1 and role_of(entry.name) is not None]
    return Choice(splits, names[0] if len(names) == 1 else None, [entry for entry in rest if entry not in names[:1]])


def _pair(
    where: Path,
    group: list[ArrayEntry],
    entries: Sequence[ArrayEntry],
    image_field: str | None,
    label_field: str | None,
) -> Chosen | None:
    """The images and labels of one split; None if it lacks one of the two."""
    images = _candidates(group, "images", image_field)
    labels = [entry for entry in _candidates(group, "labels", label_field) if entry not in images]
    if len(images) == 1 and len(labels) > 1:
        labels = [entry for entry in labels if entry.shape[:1] == images[0].shape[:1]]
    if not images or not labels:
        return None
    if len(images) > 1:
        raise _unclear(where, entries, f"{_names(images)} may all be the images")
    if len(labels) > 1:
        raise _unclear(where, entries, f"{_names(labels)} may all be the labels of {images[0].name}")
    _refuse_other_count(images[0], labels[0])
    return Chosen((images[0],), labels[0])


def _candidates(group: list[ArrayEntry], role: Role, wanted: str | None) -> list[ArrayEntry]:
    if wanted is not None:
        exact = [entry for entry in group if entry.name == wanted]
        return exact or [entry for entry in group if without_split(entry.name) == without_split(wanted)]
    named = [entry for entry in group if _is(entry, role)]
    if named:
        return named
    unnamed = [entry for entry in group if role_of(entry.name) is None]
    like_images = [entry for entry in unnamed if _looks_like_images(entry)]
    # Labels (n, 100) look like flat images of 10×10, unless there are real ones.
    like_images = [entry for entry in like_images if len(entry.shape) > 2] or like_images
    if role == "images":
        return like_images
    return [entry for entry in unnamed if entry not in like_images and len(entry.shape) <= 2]


def _is(entry: ArrayEntry, role: Role) -> bool:
    """Whether an array has the name and the dimensions of a role."""
    if role_of(entry.name) != role:
        return False
    return entry.holds_encoded or entry.dtype.kind == "S" or len(entry.shape) > 1 or role == "labels"


def _looks_like_images(entry: ArrayEntry) -> bool:
    layout = layout_of(entry.shape[1:])
    return entry.holds_encoded or (layout is not None and min(layout.height, layout.width) >= SMALLEST_SIDE)


def _by_file(entries: Sequence[ArrayEntry]) -> dict[str, Chosen]:
    """Files that are a class each, as QuickDraw's: cat.npy, dog.npy; in one folder, or in one for each split."""
    files = {entry.file.path for entry in entries}
    if len(files) < max(2, len(entries)) or not all(map(_looks_like_images, entries)):
        return {}
    alike = {(entry.shape[1:], entry.dtype) for entry in entries}
    bare = [entry.name.rpartition("/")[2] for entry in entries]
    if len(alike) > 1 or any(map(role_of, bare)) or all(word in WORDS for name in bare for word in words_of(name)):
        return {}
    by_split: dict[str, list[ArrayEntry]] = {}
    for entry in entries:
        # Not by the file's name: train is one of QuickDraw's classes.
        by_split.setdefault(split_of(entry.name.rpartition("/")[0]) or "train", []).append(entry)
    return {split: Chosen(tuple(sorted(group, key=class_of)), None) for split, group in by_split.items()}


def _refuse_other_count(images: ArrayEntry, labels: ArrayEntry) -> None:
    if images.shape[0] != (labels.shape or (1,))[0]:
        raise UserError(
            f"{images.name} and {labels.name} of {images.file.path} do not belong together",
            why=f"there are {images.shape[0]:,} images and {(labels.shape or (1,))[0]:,} labels",
            remedy="name the arrays that do with data.image_field and data.label_field",
        )


def _names(entries: Sequence[ArrayEntry]) -> str:
    return " and ".join(entry.name for entry in entries[:5])


def _unclear(where: Path, entries: Sequence[ArrayEntry], why: str) -> UserError:
    return UserError(
        f"nothing says which arrays of {where} are the images and their labels",
        why=f"{why}: {listed(entries)}",
        remedy="name them with data.image_field and data.label_field; a name without its split, such as x for x_train "
        "and x_test, is for all splits",
    )
