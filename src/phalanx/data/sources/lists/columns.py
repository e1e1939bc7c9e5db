"""Which columns of a list are the image, the label and the split: by their titles, and by which cells name files."""

from dataclasses import dataclass
from pathlib import Path

from phalanx.config.schema import DataConfig
from phalanx.data.sources.lists.header import (
    COUNTER_TITLES,
    IMAGE_TITLES,
    LABEL_TITLES,
    LABEL_WORDS,
    is_header,
    named_column,
    shown_columns,
    title_of,
)
from phalanx.data.sources.lists.labels import NUMBER, LabelRules, read_labels, zero_or_one
from phalanx.data.sources.lists.places import ENDINGS, Place, find_place
from phalanx.data.sources.lists.rows import BLANKS, LINES, Row, Rows
from phalanx.data.sources.lists.splits import split_column
from phalanx.errors import UserError

_MAX_TRIED = 6  # columns without a known title that are looked at for names of files


@dataclass(frozen=True)
class Columns:
    """The columns of a list: their numbers, and their titles if it has a header."""

    titles: tuple[str, ...]
    width: int
    image: int
    labels: tuple[int, ...]  # one; or several: a column for each class; none: MXNet's, all between number and path
    place: Place
    split: int | None = None
    chosen: bool = False  # whether the user named the label

    def title(self, column: int) -> str:
        return self.titles[column] if self.titles else str(column)

    def unused(self) -> list[str]:
        used = {self.image % self.width, *self.labels, self.split}
        return [title for column, title in enumerate(self.titles) if column not in used]


def find_columns(rows: Rows, config: DataConfig) -> tuple[Rows, Columns]:
    """The columns of a list, by its first rows. Lines whose files are not found may be separated at each blank."""
    first = rows.first()
    if not first:
        raise empty_list(rows.path)
    mxnet = _mxnet_columns(rows, first, config)
    if mxnet is not None:
        return rows, mxnet
    image, place = _image_column(rows, first, config)
    if rows.separator == LINES and (not place.found or image):
        blanks = Rows(rows.path, BLANKS, rows.encoding)
        cells = blanks.first()
        if len(cells[-1]) > 2 and len({len(row) for row in cells[1:]}) == 1:
            mxnet = _mxnet_columns(blanks, cells, config)
            if mxnet is not None:
                return blanks, mxnet
            column, other = _image_column(blanks, cells, config)
            if other.found > place.found:
                rows, first, image, place = blanks, cells, column, other
    return rows, _Search(rows.path, first, image, place, config).columns()


def empty_list(path: Path) -> UserError:
    return UserError(f"{path} is empty", why="no line of it names a label", remedy="give one line per image")


def _mxnet_columns(rows: Rows, first: list[Row], config: DataConfig) -> Columns | None:
    """MXNet's `number<tab>label<tab>path`, with any number of labels."""
    row = first[0]
    if len(row) < 3 or config.image_field is not None or config.label_field is not None:
        return None
    if not all(NUMBER.fullmatch(cell.strip()) for cell in row[:-1]) or NUMBER.fullmatch(row[-1].strip()):
        return None
    place = find_place(rows.path, [row[-1] for row in first], config.root)
    numbers = [row[0].strip() for row in first]
    if rows.separator != LINES and (not place.found or len(set(numbers)) < len(numbers)):
        return None
    same = all(len(row) == 3 for row in first)
    if not same:  # lists of several labels are often of other tasks, which is worth more to know than missing files
        read_labels(
            [tuple(row[1:-1]) for row in first], LabelRules(config.multi_label, config.label_element), rows.where
        )
    return Columns((), len(row), len(row) - 1 if same else -1, (1,) if same else (), place)


def _image_column(rows: Rows, first: list[Row], config: DataConfig) -> tuple[int, Place]:
    """(the column of paths, where their files are): by the user's word, by its title, by the files."""
    body, columns = _body(first), _candidates(rows.path, first, config)
    best = columns[0], Place(rows.path.parent)
    for column in columns:
        place = find_place(rows.path, [row[column] for row in body], config.root)
        if place.found > best[1].found or column == columns[0]:
            best = column, place
        if best[1].all_found:
            break
    return best


def _body(first: list[Row]) -> list[Row]:
    """The rows after the first one that are as long; the first one itself if there is no other."""
    return [row for row in first[1:] if len(row) == len(first[0])] or first[:1]


def _candidates(path: Path, first: list[Row], config: DataConfig) -> list[int]:
    """Columns that may be the image's, the likeliest first."""
    if config.image_field is not None:
        return [named_column(str(path), "data.image_field", config.image_field, first[0], has_titles=True)]
    titles, body = [title_of(cell) for cell in first[0]], _body(first)
    known = [titles.index(title) for title in IMAGE_TITLES if title in titles]
    distinct = [len({row[column] for row in body}) for column in range(len(titles))]
    others = sorted(range(len(titles)), key=lambda column: -distinct[column])  # images differ, labels repeat
    with_endings = [column for column in others if _are_file_names([row[column] for row in body])]
    return list(dict.fromkeys([*known, *with_endings] if with_endings else [*(known or [0]), *others[:_MAX_TRIED]]))


def _are_file_names(cells: list[str]) -> bool:
    """Whether most cells have the ending of an image: then no other column has ids, even if 1.jpg exists."""
    return 2 * sum(cell.strip().lower().endswith(ENDINGS) for cell in cells) > len(cells)


@dataclass
class _Search:
    """The search for the label and the split, once the image is known."""

    path: Path
    first: list[Row]
    image: int
    place: Place
    config: DataConfig

    def columns(self) -> Columns:
        first, field = self.first[0], self.config.label_field
        header = self._has_header()
        self._refuse_pixels()
        body = _body(self.first) if header else [row for row in self.first if len(row) == len(first)]
        titles = [title_of(cell) for cell in first] if header else []
        rest = [column for column in range(len(first)) if column != self.image]
        labels = self._named(header) if field is not None else ()
        split = split_column(titles, [column for column in rest if column not in labels], body)
        if not labels:
            labels = self._labels(titles, [column for column in rest if column != split], body)
        return Columns(
            tuple(cell.strip() for cell in first) if header else (),
            len(first),
            self.image,
            labels,
            self.place,
            split,
            chosen=field is not None,
        )

    def _has_header(self) -> bool:
        first = self.first[0]
        rows = [row for row in self.first if len(row) == len(first)]
        fields = [self.config.image_field, *(self.config.label_field or "").split(","), self.config.label_field]
        named = {field.strip() for field in fields if field and not field.strip().isdecimal()}
        if named.intersection(cell.strip() for cell in first) and not self.place.has(first[self.image]):
            return True
        return is_header(rows, self.image, self.place)

    def _refuse_pixels(self) -> None:
        first = self.first[0]
        if not self.place.found and any(title_of(cell).startswith("pixel") for cell in first):
            raise UserError(
                f"{self.path} holds pixels, not names of image files",
                why=f"its columns are {shown_columns(first)}",
                remedy="save the pixels as arrays (.npy, .npz), or as image files with a list `image,label`",
            )

    def _named(self, header: bool) -> tuple[int, ...]:
        """The columns that data.label_field names: one, or several with commas between them."""
        field, first = self.config.label_field or "", self.first[0]
        names = [field] if field.strip() in (cell.strip() for cell in first) else field.split(",")
        setting = "data.label_field"
        return tuple(named_column(str(self.path), setting, name, first, has_titles=header) for name in names)

    def _labels(self, titles: list[str], rest: list[int], body: list[Row]) -> tuple[int, ...]:
        rest = [column for column in rest if not titles or titles[column] not in COUNTER_TITLES]
        if len(rest) == 1:
            return tuple(rest)
        binary = [column for column in rest if _is_binary([row[column] for row in body])]
        one_each = all(sum(zero_or_one(row[column]) == 1 for column in binary) == 1 for row in body)
        if len(binary) > 2 and binary == rest and one_each:  # a class may be called `level`
            return tuple(binary)
        known = [column for title in LABEL_TITLES for column in rest if titles and titles[column] == title]
        if known:
            return (known[0],)
        if len(binary) > 1 and (binary == rest or self.config.multi_label or one_each) and (titles or len(binary) > 2):
            return tuple(binary)
        words = [column for column in rest if titles and LABEL_WORDS.intersection(titles[column].split("_"))]
        if len(words) == 1:
            return tuple(words)
        raise self._unclear(rest, header=bool(titles))

    def _unclear(self, rest: list[int], *, header: bool) -> UserError:
        first = self.first[0]
        seen = f"its {'columns are' if header else 'first row is'} {shown_columns(first)}"
        if len(first) == 1:
            return UserError(
                f"{self.path}, line 1 does not name one file and one label",
                why=f"it has 1 column(s): {first[0].strip()[:80]!r}",
                remedy="write `path label`, separated by a tab, a blank or a comma",
            )
        if not self.place.found:
            return UserError(
                f"no column of {self.path} names files that exist",
                why=f"{seen}; paths are looked for in {self.place.root}",
                remedy="name the columns with data.image_field and data.label_field, and the folder that the paths "
                "start from with data.root",
            )
        names = [first[column].strip() if header else str(column) for column in rest]
        return UserError(
            f"{self.path} has no column that is clearly the label",
            why=f"{seen}; the images are {'column ' + repr(first[self.image].strip()) if header else self.image}",
            remedy=f"name it: data.label_field={names[0] if names else 'NAME'}"
            + (f" (or {', '.join(names[1:4])})" if len(names) > 1 else ""),
        )


def _is_binary(cells: list[str]) -> bool:
    return all(zero_or_one(cell) is not None for cell in cells) and any(cell.strip() for cell in cells)
