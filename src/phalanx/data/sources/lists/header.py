"""The header of a list: whether its first row is one, what its titles mean, and columns that the user names."""

import re
from collections.abc import Sequence

from phalanx.data.sources.lists.labels import NUMBER
from phalanx.data.sources.lists.places import ENDINGS, Place
from phalanx.data.sources.lists.rows import Row
from phalanx.errors import UserError, nearest

# In the order of preference, as `title_of` writes them.
IMAGE_TITLES = (
    *("image", "img", "image_path", "img_path", "imagepath", "path", "paths", "filepath", "filepaths", "file_path"),
    *("filename", "filenames", "file_name", "fname", "file", "files", "image_name", "imagename", "img_name"),
    *("image_file", "image_id", "imageid", "img_id", "image_index", "images", "imgs", "id", "id_code", "name", "photo"),
)
LABEL_TITLES = (
    *("label", "labels", "class", "cls", "class_name", "classname", "label_name", "category", "category_name"),
    *("target", "targets", "y", "tags", "tag", "breed", "species", "diagnosis", "dx", "finding_labels", "classes"),
    *("label_id", "class_id", "classid", "class_index", "category_id", "label_idx", "level", "attribute_ids"),
)
LABEL_WORDS = {"label", "labels", "class", "classes", "category", "target"}
COUNTER_TITLES = {"", "index", "idx", "row", "unnamed_0"}  # rows counted, as pandas writes them


def title_of(cell: str) -> str:
    """A title to compare: `Image Index` is image_index."""
    return re.sub(r"\W+", "_", cell.strip().lower()).strip("_")


def is_header(rows: Sequence[Row], image: int, place: Place) -> bool:
    """Whether the first row has titles. Data is never taken for it: its image is a file, or has a file's name."""
    first, body = rows[0], rows[1:]
    cell = first[image].strip()
    if place.has(cell) or cell.lower().endswith(ENDINGS):
        return False
    if title_of(cell) in IMAGE_TITLES and not any(row[image].strip() == cell for row in body):
        return True
    others = [column for column in range(len(first)) if column != image % len(first)]
    if any(_is_title(first[column], [row[column] for row in body]) for column in others):
        return True
    repeated = any(first[column].strip() == row[column].strip() for row in body for column in others)
    return bool(body) and not repeated and all(place.has(row[image].strip()) for row in body[:50])


def _is_title(cell: str, below: list[str]) -> bool:
    """Whether a cell is the only one of its column that is no number, or a word for labels that is no label."""
    if not below or NUMBER.fullmatch(cell.strip()) or not cell.strip():
        return False
    return all(NUMBER.fullmatch(other.strip()) for other in below) or (
        title_of(cell) in LABEL_TITLES and all(other.strip() != cell.strip() for other in below)
    )


def named_column(where: str, setting: str, name: str, first: Row, *, has_titles: bool) -> int:
    """The column that the user names by its title, or by its number from 0."""
    for same in (str.strip, title_of) if has_titles else ():
        found = [column for column, cell in enumerate(first) if same(cell) == same(name)]
        if found:
            return found[0]
    if name.strip().isdecimal() and int(name) < len(first):
        return int(name)
    titles = [cell.strip() for cell in first]
    raise UserError(
        f"{where} has no column {name!r}, which {setting} names",
        why=f"{'its columns are' if has_titles else 'it has no header, and its first row is'} {shown_columns(first)}",
        remedy=(nearest(name, titles) if has_titles else "name columns by their numbers") + ", counted from 0",
    )


def shown_columns(first: Row) -> str:
    """The columns with their numbers, for messages: `0 'id', 1 'breed'`."""
    shown = [f"{column} {cell.strip()[:40]!r}" for column, cell in enumerate(first)]
    if len(shown) > 12:
        shown[8:-2] = [f"… ({len(first):,} in all) …"]
    return ", ".join(shown)
