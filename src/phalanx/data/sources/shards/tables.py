"""Parquet and Arrow files. Images in compressed pages have no place of their own: such a file is copied once, as Arrow.

Training reads images in random order. Of a Parquet file, one image costs the decoding of a whole row group (100 to 1000
images); of an uncompressed Arrow file, one read at its offset. The copy has only the columns that are used, and its
images are as compressed as before.
"""

import contextlib
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from rich.console import Console

from phalanx.data.sources.shards.arrow_columns import is_inside, record_batches, whole_file
from phalanx.data.sources.shards.indexing import Shard
from phalanx.data.sources.shards.unpack import CheckSpace, copy_in_cache
from phalanx.errors import UserError
from phalanx.observe.progress import megabytes

FILE_NAMES = re.compile(r"\.(parquet|pq|arrow|feather)$")
PARQUET, ARROW_FILE, ARROW_STREAM = b"PAR1", b"ARROW1", b"\xff\xff\xff\xff"
ROWS_AT_ONCE = 64


def is_table(start: bytes) -> bool:
    """Whether a file begins as a Parquet or Arrow file. The beginning of an Arrow stream says too little."""
    return start.startswith((PARQUET, ARROW_FILE))


def pyarrow_for(path: Path) -> Any:
    """pyarrow, or an error that says how to install it."""
    try:
        import pyarrow
        import pyarrow.ipc
        import pyarrow.parquet
    except ImportError as error:
        raise UserError(
            f"{path} is a table of Hugging Face, Parquet or Arrow, and pyarrow is not installed",
            why="such files are read with it",
            remedy="pip install 'phalanx[huggingface]'",
        ) from error
    return pyarrow


def schema_of(path: Path) -> Any:
    """The columns of a file, and its metadata."""
    arrow = pyarrow_for(path)
    with _damage_explained(path):
        if _is_parquet(path):
            return arrow.parquet.read_schema(path)
        for batch in record_batches(arrow, whole_file(arrow, path)):
            return batch.schema
    raise UserError(f"{path} holds no rows", why="there is nothing in the file", remedy="leave it out")


def described(schema: Any) -> str:
    """The columns with their types, for a message."""
    shown = [f"{field.name} ({str(field.type)[:60]})" for field in schema]
    return ", ".join(shown[:20]) + (f" … ({len(shown)} in all)" if len(shown) > 20 else "")


def readable_tables(paths: Sequence[Path], columns: Sequence[str]) -> list[Shard]:
    """Files whose images can be read at their offsets: the files themselves, or copies of these columns."""
    arrow = pyarrow_for(paths[0])
    to_copy = [path for path in paths if _is_parquet(path) or _is_compressed(arrow, path, columns[0])]
    if not to_copy:
        return [Shard.of(path) for path in paths]
    total = sum(path.stat().st_size for path in to_copy)
    what = f"copying {to_copy[0].name if len(to_copy) == 1 else f'{len(to_copy):,} files'} as Arrow"
    with megabytes(Console(stderr=True), what, total) as advance:
        return [_copied(arrow, path, columns, advance) if path in to_copy else Shard.of(path) for path in paths]


def _copied(arrow: Any, path: Path, columns: Sequence[str], advance: Callable[[int], None]) -> Shard:
    schema = schema_of(path)
    missing = [name for name in columns if name not in schema.names]
    if missing:
        raise UserError(
            f"{path} has no column {missing[0]!r}",
            why=f"its columns are {described(schema)}",
            remedy="name the columns with data.image_field and data.label_field, or leave the file out",
        )

    def write(out: BinaryIO, check_space: CheckSpace) -> None:
        with _damage_explained(path):
            batches = _batches(arrow, path, columns)
            first = next(batches, None)
            if first is None:
                raise UserError(f"{path} holds no rows", why="there is nothing in the file", remedy="leave it out")
            rows = _num_rows(arrow, path)
            with arrow.ipc.new_stream(out, first.schema) as writer:
                for number, batch in enumerate(_with(first, batches)):
                    if number % 16 == 0:
                        check_space()
                    writer.write_batch(batch)
                    advance(path.stat().st_size * batch.num_rows // max(1, rows))

    kind = "Parquet" if _is_parquet(path) else "compressed"
    note = f"is {kind} and is read through a copy in"
    variant = f"-{zlib.crc32(repr(list(columns)).encode()):08x}"
    return copy_in_cache(path, write, needed=_size_of_copy(arrow, path, columns), note=note, variant=variant)


def _with(first: Any, rest: Iterator[Any]) -> Iterator[Any]:
    yield first
    yield from rest


def _batches(arrow: Any, path: Path, columns: Sequence[str]) -> Iterator[Any]:
    if _is_parquet(path):
        with arrow.parquet.ParquetFile(path) as file:
            yield from file.iter_batches(ROWS_AT_ONCE, columns=list(columns))
        return
    for batch in record_batches(arrow, whole_file(arrow, path)):
        yield batch.select(list(columns))


def _num_rows(arrow: Any, path: Path) -> int:
    if _is_parquet(path):
        return int(arrow.parquet.read_metadata(path).num_rows)
    return sum(batch.num_rows for batch in record_batches(arrow, whole_file(arrow, path)))


def _size_of_copy(arrow: Any, path: Path, columns: Sequence[str]) -> int:
    """About the bytes of a copy: those of its columns before they were compressed."""
    if not _is_parquet(path):
        return path.stat().st_size
    with _damage_explained(path):
        about = arrow.parquet.read_metadata(path)
        groups = (about.row_group(number) for number in range(about.num_row_groups))
        chunks = (group.column(number) for group in groups for number in range(group.num_columns))
        return sum(chunk.total_uncompressed_size for chunk in chunks if chunk.path_in_schema.split(".")[0] in columns)


def _is_parquet(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == PARQUET


def _is_compressed(arrow: Any, path: Path, column: str) -> bool:
    """Whether the values of a column are not as they are in an Arrow file. What is damaged, the scan reports."""
    try:
        whole = whole_file(arrow, path)
        for batch in record_batches(arrow, whole):
            if batch.num_rows:
                return not is_inside(batch.column(batch.schema.get_field_index(column)), whole)
    except UserError:
        raise
    except Exception:  # a damaged file raises all kinds of exceptions in pyarrow
        return False
    return False


@contextlib.contextmanager
def _damage_explained(path: Path) -> Iterator[None]:
    """Turn the exceptions of pyarrow, which are of all kinds, into one that names the file."""
    try:
        yield
    except UserError:
        raise
    except MemoryError as error:
        raise UserError(
            f"{path} needs more memory than there is",
            why=f"its lengths ask for it, or it is damaged: {str(error)[:200]}",
            remedy="copy or download the file again; or use a machine with more memory",
        ) from error
    except Exception as error:
        if isinstance(error, OSError) and error.errno is not None:  # of the system: no space, no permission
            raise
        raise UserError(
            f"{path} is not a complete Parquet or Arrow file",
            why=str(error)[:200] or type(error).__name__,
            remedy="copy or download the file again",
        ) from error
