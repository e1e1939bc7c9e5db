"""A list that has been read: its files, what each row says about its classes, and its splits."""

from array import array
from dataclasses import dataclass, replace
from operator import itemgetter
from pathlib import Path

import numpy as np
import numpy.typing as npt

from phalanx.config.schema import DataConfig
from phalanx.data.order import Indices
from phalanx.data.sources.folders import Names
from phalanx.data.sources.labelled import Part
from phalanx.data.sources.lists.classes import ListLabels, sample_labels
from phalanx.data.sources.lists.columns import Columns, empty_list, find_columns
from phalanx.data.sources.lists.files import FileFinder
from phalanx.data.sources.lists.header import title_of
from phalanx.data.sources.lists.labels import Key, LabelRules
from phalanx.data.sources.lists.rows import Row, Rows, find_rows
from phalanx.data.sources.lists.splits import split_of_cell
from phalanx.errors import UserError


class Codes(dict[Key, int]):
    """Different values, numbered in the order of their first occurrence."""

    def __missing__(self, key: Key) -> int:
        self[key] = code = len(self)
        return code


@dataclass(frozen=True)
class ListSplits:
    """The rows of each split, all that are used, and notes for the user."""

    rows: dict[Part, Indices]
    used: Indices
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Table:
    """A list: per row the name of its file, the code of its label, and the code of its split, if there are any."""

    path: Path
    rows: Rows
    columns: Columns
    names: Names
    hashes: npt.NDArray[np.int64]  # of the names, to compare them: the same in this process only
    missing: Indices  # rows whose file does not exist
    keys: Codes
    codes: npt.NDArray[np.int64]
    split_cells: Codes
    split_codes: npt.NDArray[np.int64]
    other_spelling: int

    @property
    def all_rows(self) -> Indices:
        return np.arange(len(self.names), dtype=np.int64)

    def where(self, row: int) -> str:
        """`FILE, line N`."""
        return self.rows.where(row + bool(self.columns.titles))

    def labels(self, kept: Indices, used: Indices, classes: list[str] | None, config: DataConfig) -> ListLabels:
        """The labels of rows that are kept. Classes are those of all rows that are used in any split."""
        first = np.zeros(len(self.keys), dtype=np.int64)  # the first row that is used, for each code
        first[self.codes[used[::-1]]] = used[::-1]
        present, keys = np.flatnonzero(np.bincount(self.codes[used])), list(self.keys)
        place = np.zeros(len(keys), dtype=np.int64)
        place[present] = np.arange(len(present))
        return sample_labels(
            [keys[code] for code in present.tolist()],
            place[self.codes[kept]],
            self._rules(config),
            classes,
            lambda i: self.where(int(first[present[i]])),
        )

    def _rules(self, config: DataConfig) -> LabelRules:
        """How the labels of this list are read."""
        columns = self.columns.labels
        titles = [self.columns.title(column) for column in columns]
        if len(columns) > 1 and not self.columns.titles:
            titles = [str(number) for number in range(len(columns))]
        return LabelRules(
            config.multi_label,
            config.label_element,
            tuple(titles) if len(columns) > 1 else (),
            title_of(titles[0]) if titles and self.columns.titles else "",
            self.columns.chosen,
        )

    def splits(self) -> ListSplits | None:
        """The splits of a column, if it has rows for training and others."""
        column = self.columns.split
        if column is None:
            return None
        title = self.columns.title(column) if self.columns.titles else ""
        words = [split_of_cell(title_of(title), str(cell)) for cell in self.split_cells]
        held = next((word for word in ("val", "test") if word in words), None)
        if held is None or "train" not in words:
            return None
        part_of = np.array([{"train": 0, held: 1}.get(word or "", 2) for word in words])[self.split_codes]
        rows = [np.flatnonzero(part_of == part) for part in range(3)]
        note = f"column {title or column!r}: {len(rows[0]):,} rows for training, {len(rows[1]):,} for validation"
        if len(rows[2]):
            pairs = zip(self.split_cells, words, strict=True)
            others = {str(cell).strip() for cell, word in pairs if word not in ("train", held)}
            note += f"; {len(rows[2]):,} are left out ({', '.join(sorted(others)[:3])})"
        return ListSplits({"train": rows[0], "val": rows[1]}, np.flatnonzero(part_of < 2), (note,))


def read_table(path: Path, config: DataConfig, *, flat: bool = False) -> Table:
    """Read a list and look for its files, in one pass. `flat`: they are all directly in the root, whatever it says."""
    rows, columns = find_columns(find_rows(path), config)
    if flat:
        columns = replace(columns, place=replace(columns.place, cut="", flat=True))
    finder, names, missing = FileFinder(columns.place), Names(), array("q")
    keys, codes, split_cells, split_codes, hashes = Codes(), array("q"), Codes(), array("q"), array("q")
    key_of = itemgetter(*columns.labels) if columns.labels else _between
    titles = 1 if columns.titles else 0
    for chunk in rows.chunks():
        start = len(names)
        chunk = chunk[titles if not start else 0 :]
        _refuse_other_widths(rows, columns, chunk, start + titles)
        images = [row[columns.image].strip() for row in chunk]
        if "\0" in "".join(images):
            number, cell = next((number, cell) for number, cell in enumerate(images) if "\0" in cell)
            rows.refuse_zero_bytes([cell], start + titles + number)
        found, absent = finder.find(images)
        names.extend(found)
        hashes.extend(map(hash, found))
        missing.extend(start + position for position in absent)
        codes.extend(map(keys.__getitem__, map(key_of, chunk)))
        if columns.split is not None:
            split_codes.extend(map(split_cells.__getitem__, map(itemgetter(columns.split), chunk)))
    if not len(names):
        raise empty_list(path)
    return Table(
        path,
        rows,
        columns,
        names,
        np.frombuffer(hashes, np.int64),
        np.array(missing, dtype=np.int64),
        keys,
        np.frombuffer(codes, np.int64),
        split_cells,
        np.array(split_codes, dtype=np.int64),
        finder.other_spelling,
    )


def _between(row: Row) -> tuple[str, ...]:
    """MXNet's labels: all between the number and the path."""
    return tuple(row[1:-1])


def _refuse_other_widths(rows: Rows, columns: Columns, chunk: list[Row], start: int) -> None:
    """Refuse a row that is shorter or longer than the others; empty cells at its end do not count."""
    widths = set(map(len, chunk))
    if widths == {columns.width} or (not columns.labels and min(widths, default=3) >= 3):
        return
    for position, row in enumerate(chunk):
        if len(row) != columns.width and (len(row) < columns.width or any(row[columns.width :])):
            raise UserError(
                f"{rows.where(start + position)} does not name one file and one label",
                why=f"it has {len(row)} column(s), and the first row {columns.width}: {' | '.join(row)[:80]!r}",
                remedy="write `path label`, separated by a tab or a blank; a table has the same columns in every row, "
                "and quotes around cells that contain its separator",
            )
