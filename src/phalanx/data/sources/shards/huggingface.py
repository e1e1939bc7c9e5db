"""A Hugging Face dataset on disk: from `save_to_disk`, or from the cache of `load_dataset`."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from phalanx.data.sources.labelled import Part
from phalanx.data.sources.open_request import OpenRequest
from phalanx.data.sources.shards.arrow import ArrowReader
from phalanx.data.sources.shards.class_columns import class_columns, class_label
from phalanx.data.sources.shards.find_files import VAL_NAMES, complete, find_parts, tested_by
from phalanx.data.sources.shards.indexing import Shard
from phalanx.data.sources.shards.shard_source import ShardSource, describe, open_shards
from phalanx.errors import UserError

DICT, INFO, STATE = "dataset_dict.json", "dataset_info.json", "state.json"
USUAL_LABELS = ("label", "labels", "fine_label", "cls", "class")


def is_huggingface(path: Path) -> bool:
    if not path.is_dir():
        return False
    return (path / DICT).is_file() or ((path / INFO).is_file() and any(map(_is_arrow, path.iterdir())))


def open_huggingface(path: Path, part: Part, request: OpenRequest) -> ShardSource | None:
    """The training or validation part of a dataset; None where there is no such part."""
    found = _files(path, part)
    if found is None:
        return None
    folder, files, notes = found
    features = _json(folder / INFO).get("features") or {}
    image = request.config.image_field or _only(folder, features, "image", "Image", ("image", "img"))
    config = request.config
    by_kind = class_columns(features, lists=config.multi_label)
    label = config.label_field or _only(folder, by_kind or features, "label", "ClassLabel", USUAL_LABELS)
    names = class_label(features.get(label)).get("names")
    given = [str(name) for name in names] if isinstance(names, list) else None
    reader = ArrowReader(image, label, config.label_element, config.multi_label, given is not None)
    what = describe("Hugging Face", files)
    source = open_shards(what, [Shard.of(file) for file in files], reader, request, given=given)
    return replace(source, notes=(*source.notes, *notes))


def _files(path: Path, part: Part) -> tuple[Path, list[Path], tuple[str, ...]] | None:
    """(the folder that describes a part, its Arrow files, notes)."""
    if (path / DICT).is_file():
        splits = [str(name) for name in _json(path / DICT).get("splits", [])]
        wanted = ("train",) if part == "train" else VAL_NAMES
        split = next((name for name in wanted if name in splits), None)
        if split is None and part == "train":
            raise UserError(
                f"{path} has no split called train",
                why=f"its splits are {', '.join(splits) or 'none'}",
                remedy="name the folder of one of them",
            )
        if split is None:
            return None
        return path / split, _saved_files(path / split), (tested_by(path / split),) if split == "test" else ()
    if (path / STATE).is_file():
        return (path, _saved_files(path), ()) if part == "train" else None
    parts = find_parts(path, _is_arrow)
    if parts is None:
        return None
    files, notes = (parts.train, parts.train_notes) if part == "train" else (parts.val, parts.val_notes)
    return (path, complete(files), notes) if files else None


def _saved_files(folder: Path) -> list[Path]:
    state = _json(folder / STATE)
    if state.get("_indices_data_files") or state.get("_indices_files"):
        raise UserError(
            f"{folder} is a selection from other rows",
            why="it was saved with an index of its rows, by an old version of datasets",
            remedy="save it again: dataset.flatten_indices().save_to_disk(…)",
        )
    try:
        files = [folder / entry["filename"] for entry in state["_data_files"]]
    except (KeyError, TypeError) as error:
        raise _unreadable(folder / STATE, "it names no data files") from error
    missing = [file for file in files if not file.is_file()]
    if missing or not files:
        raise _unreadable(folder / STATE, f"{missing[0].name} is missing" if missing else "it names no data files")
    return files


def _only(folder: Path, features: Mapping[str, Any], what: str, kind: str, usual: tuple[str, ...]) -> str:
    """The column of a kind: the only one, or the one with a usual name."""
    of_kind = [name for name, feature in features.items() if isinstance(feature, dict) and feature.get("_type") == kind]
    if len(of_kind) == 1:
        return of_kind[0]
    among = of_kind or list(features)
    name = next((name for name in usual if name in among), None)
    if name is None:
        columns, found = ", ".join(features) or "not described", ", ".join(of_kind) or "none"
        raise UserError(
            f"nothing says which column of {folder} is the {what}",
            why=f"its columns are {columns}; of the type {kind}: {found}",
            remedy=f"name it with data.{what}_field",
        )
    return name


def _json(file: Path) -> dict[str, Any]:
    try:
        found = json.loads(file.read_bytes())
    except (ValueError, RecursionError) as error:
        raise _unreadable(file, f"it is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise _unreadable(file, "it is not a JSON object")
    return found


def _is_arrow(path: Path) -> bool:
    return path.suffix == ".arrow" and path.is_file()


def _unreadable(file: Path, why: str) -> UserError:
    return UserError(f"{file} does not describe a dataset", why=why, remedy="save the dataset again with save_to_disk")
