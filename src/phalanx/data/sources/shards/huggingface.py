"""Hugging Face datasets on disk, and any Parquet or Arrow files: how they are recognised, and their parts opened."""

from dataclasses import replace
from pathlib import Path

from phalanx.data.sources.labelled import Labelled, Part
from phalanx.data.sources.open_request import OpenRequest
from phalanx.data.sources.shards.hf_files import files_of, is_dataset_folder
from phalanx.data.sources.shards.shard_format import ShardFormat
from phalanx.data.sources.shards.table_source import open_tables
from phalanx.data.sources.shards.tables import FILE_NAMES, is_table

TABLES = ShardFormat("Parquet or Arrow", FILE_NAMES, is_table, open_tables)


def is_huggingface(path: Path) -> bool:
    """Whether a path is a folder, a file or a pattern of files with tables."""
    return is_dataset_folder(path) if path.is_dir() else TABLES.recognises(path)


def open_huggingface(path: Path, part: Part, request: OpenRequest) -> Labelled | None:
    """The training or validation part of a dataset; None where there is no such part."""
    if not path.is_dir():
        return TABLES.train(path, request) if part == "train" else TABLES.val(path, request)
    found = files_of(path, part)
    if found is None:
        return None
    source = open_tables(found.files, request, found.features)
    return replace(source, notes=(*source.notes, *found.notes))
