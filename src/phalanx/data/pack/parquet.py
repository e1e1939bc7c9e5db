"""Hugging Face's layout: data/train-00000-of-00004.parquet with an Image and a ClassLabel column; a dataset card."""

import importlib
import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from phalanx.data.pack.checksums import ChecksummedFile
from phalanx.data.pack.endings import ending_of
from phalanx.data.sources.labelled import Part
from phalanx.data.sources.manifest import FileEntry, Manifest
from phalanx.errors import UserError

FOLDER, ENDING, CARD = "data", ".parquet", "README.md"
SPLIT_NAMES: dict[Part, str] = {"train": "train", "val": "validation"}
ROW_GROUP = 100  # images; what a reader has to read for one of them. Hugging Face writes as many


@dataclass(frozen=True)
class NamedImage:
    """A compressed image, and the name of its file if it is known."""

    data: bytes
    name: str | None

    def __len__(self) -> int:
        return len(self.data)


def pyarrow_modules() -> tuple[Any, Any]:
    """pyarrow and pyarrow.parquet, which only this format needs."""
    try:
        return importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
    except ImportError as error:
        raise UserError(
            "--format parquet needs pyarrow, which is not installed",
            why="Parquet files are written with it",
            remedy="pip install 'phalanx[huggingface]'",
        ) from error


class ParquetShard:
    """A Parquet file being written, in row groups."""

    def __init__(self, stem: Path, classes: list[str]) -> None:
        self._arrow, parquet = pyarrow_modules()
        stem.parent.mkdir(exist_ok=True)
        self._file = ChecksummedFile(stem.with_name(stem.name + ENDING))
        self._sink = _Sink(self._file)
        self._rows: list[dict[str, Any]] = []
        self._waiting = 0  # bytes of these rows
        self._schema = _schema(self._arrow, classes)
        self._writer = parquet.ParquetWriter(
            self._sink,
            self._schema,
            compression="none",  # images are compressed already
            use_dictionary=["label"],
            write_statistics=["label"],
        )

    @property
    def size(self) -> int:
        return self._file.sums.bytes + self._waiting

    def add(self, number: int, label: int, data: NamedImage) -> None:
        name = data.name or f"{number:08d}.{ending_of(data.data)}"
        self._rows.append({"image": {"bytes": data.data, "path": name}, "label": label})
        self._waiting += len(data)
        if len(self._rows) == ROW_GROUP:
            self._write_rows()

    def finish(self) -> list[FileEntry]:
        if self._rows:
            self._write_rows()
        self._writer.close()
        entry = self._file.finish()
        return [entry.model_copy(update={"name": f"{FOLDER}/{entry.name}"})]

    def abandon(self) -> None:
        self._sink.discards = True
        self._writer.close()
        self._file.abandon()

    def _write_rows(self) -> None:
        self._writer.write_table(self._arrow.Table.from_pylist(self._rows, self._schema), row_group_size=ROW_GROUP)
        self._rows, self._waiting = [], 0


class _Sink(io.RawIOBase):
    """What pyarrow writes to: a checksummed file, which is closed by its owner."""

    def __init__(self, file: ChecksummedFile) -> None:
        self._file, self._place, self.discards = file, 0, False

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        if not self.discards:
            self._file.write(view)
        self._place += len(view)
        return len(view)

    def tell(self) -> int:
        return self._place


def _schema(arrow: Any, classes: list[str]) -> Any:
    """The columns, and what `datasets` reads their types and the class names from."""
    image = arrow.struct([("bytes", arrow.binary()), ("path", arrow.string())])
    features = {"image": {"_type": "Image"}, "label": {"names": classes, "_type": "ClassLabel"}}
    described = json.dumps({"info": {"features": features}}, ensure_ascii=False)
    return arrow.schema([("image", image), ("label", arrow.int64())], metadata={"huggingface": described})


def card_text(manifest: Manifest) -> str:
    """The dataset card: which files are which split, and what their columns hold."""
    names = {str(number): name for number, name in enumerate(manifest.classes)}
    parts = [SPLIT_NAMES[part] for part in manifest.splits]
    about = {
        "configs": [
            {
                "config_name": "default",
                "data_files": [{"split": part, "path": f"{FOLDER}/{part}-*"} for part in parts],
            }
        ],
        "dataset_info": {
            "features": [
                {"name": "image", "dtype": "image"},
                {"name": "label", "dtype": {"class_label": {"names": names}}},
            ],
        },
        "task_categories": ["image-classification"],
    }
    counts = ", ".join(f"{manifest.num_samples(part):,} in {SPLIT_NAMES[part]}" for part in manifest.splits)
    written = yaml.safe_dump(about, sort_keys=False, allow_unicode=True)
    return f"---\n{written}---\n\n{len(manifest.classes):,} classes; images: {counts}.\n"
