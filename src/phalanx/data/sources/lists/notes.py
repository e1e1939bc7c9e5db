"""Notes for the user about how a list was read: its columns, and where its files were found."""

from phalanx.config.schema import DataConfig
from phalanx.data.sources.lists.table import Table


def about_columns(table: Table, num_classes: int) -> tuple[str, ...]:
    """Which columns are used, unless the list has the usual two, or MXNet's, without a header."""
    columns = table.columns
    usual = columns.width == 2 and columns.image == 0
    if not columns.titles and (usual or not columns.labels or columns.labels == (columns.image - 1,)):
        return ()
    image, labels = (_shown([columns.title(at) for at in group]) for group in ((columns.image,), columns.labels))
    unused = columns.unused()
    return (
        f"columns: image = {image}, label = {labels} ({num_classes:,} classes)"
        + (f"; not used: {_shown(unused)}" if unused else ""),
    )


def about_place(table: Table, config: DataConfig) -> tuple[str, ...]:
    """Where the files are, if not exactly where the list says."""
    place, notes = table.columns.place, []
    expected = table.path.parent if config.root is None else config.root
    if place.root != expected or place.ending or place.cut or len(place.inside) > 1:
        inside = f"/{{{','.join(place.inside)}}}" if len(place.inside) > 1 else ""
        title = table.columns.title(table.columns.image) if table.columns.titles else "path"
        cut = f" (without {place.cut!r})" if place.cut else ""
        notes.append(f"images: {place.root}{inside}/<{title}>{place.ending}{cut}")
    if table.other_spelling:
        notes.append(
            f"{table.other_spelling:,} names in {table.path} differ from the files' in case, ending or Unicode form"
        )
    return tuple(notes)


def _shown(titles: list[str]) -> str:
    quoted = [repr(title) for title in titles]
    return ", ".join(quoted if len(quoted) <= 5 else [*quoted[:3], f"… {quoted[-1]} ({len(quoted)} in all)"])
