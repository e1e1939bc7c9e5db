"""The groups of a list's samples: a column that says which patient, burst or author each belongs to."""

from phalanx.data.sources.folders import Names
from phalanx.data.sources.lists.table import Table
from phalanx.errors import UserError


def groups_in(table: Table, files: Names, field: str) -> list[str]:
    """The cell of the column `field` (its title, or its number from 0) for each file."""
    titles, number = table.columns.titles, _column(table, field)
    rows = [row[number].strip() for chunk in table.rows.chunks() for row in chunk]
    of_file = dict(zip(table.names, rows[bool(titles) :], strict=True))
    return [of_file[name] for name in files]


def _column(table: Table, field: str) -> int:
    titles = [title.strip() for title in table.columns.titles]
    if field in titles:
        return titles.index(field)
    if field.isdecimal() and int(field) < table.columns.width:
        return int(field)
    raise UserError(
        f"{table.path} has no column {field!r}",
        why=f"its columns are {', '.join(titles)}"
        if titles
        else f"it has {table.columns.width} columns without titles",
        remedy="name one of them with data.group_field: its title, or its number from 0",
    )
