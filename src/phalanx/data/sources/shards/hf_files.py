"""The files of a Hugging Face dataset on disk, by split: of save_to_disk, of a cache, or of a copy from the hub."""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from phalanx.data.sources.folders import look
from phalanx.data.sources.labelled import Part
from phalanx.data.sources.shards.find_files import VAL_SPLITS, Parts, complete, find_parts, tested_by
from phalanx.data.sources.shards.hf_features import Features, features_of_readme, front_matter
from phalanx.data.sources.shards.tables import FILE_NAMES
from phalanx.data.sources.splits import Split, split_folders, split_word
from phalanx.errors import UserError

DICT, INFO, STATE = "dataset_dict.json", "dataset_info.json", "state.json"


@dataclass(frozen=True)
class Files:
    """The files of a part, what describes their columns, and notes."""

    files: list[Path]
    features: Features
    notes: tuple[str, ...] = ()


def is_dataset_folder(path: Path) -> bool:
    """Whether `datasets` wrote a folder, or it is a copy of a dataset's repository with Parquet or Arrow files."""
    if not path.is_dir():
        return False
    if (path / DICT).is_file() or ((path / INFO).is_file() and any(map(is_table_file, path.iterdir()))):
        return True
    return bool(_configs(path)) or _table_folder(path) is not None


def files_of(path: Path, part: Part) -> Files | None:
    """The files of the training or validation part of a folder; None where there is no such part."""
    if (path / DICT).is_file():
        return _saved_split(path, part)
    if (path / STATE).is_file():
        return Files(_saved_files(path), _features(path)) if part == "train" else None
    if configs := _configs(path):
        return _of_config(path, configs, part)
    folder = _table_folder(path) or path
    parts = find_parts(folder, is_table_file)
    if parts is None:
        return None
    features = _features(folder) or features_of_readme([folder, folder.parent])
    return _of_parts(parts, part, features)


def is_table_file(path: Path) -> bool:
    return FILE_NAMES.search(path.name.lower()) is not None and path.is_file()


def _saved_split(path: Path, part: Part) -> Files | None:
    splits = [str(name) for name in read_json(path / DICT).get("splits", [])]
    split = split_of(splits, part)
    if split is None and part == "train":
        raise no_training_split(path, splits)
    if split is None:
        return None
    folder = path / split
    return Files(_saved_files(folder), _features(folder), (tested_by(folder),) if split_word(split) == "test" else ())


def split_of(splits: list[str], part: Part) -> str | None:
    """The name of the training or validation split among the names of splits."""
    named = split_folders(splits)
    wanted: tuple[Split, ...] = ("train",) if part == "train" else VAL_SPLITS
    return next((named[kind][0] for kind in wanted if kind in named), None)


def no_training_split(where: object, splits: list[str]) -> UserError:
    return UserError(
        f"{where} has no split called train",
        why=f"its splits are {', '.join(splits) or 'none'}",
        remedy="name the folder or the files of one of them",
    )


def _of_parts(parts: Parts, part: Part, features: Features) -> Files | None:
    files, notes = (parts.train, parts.train_notes) if part == "train" else (parts.val, parts.val_notes)
    return Files(complete(files), features, notes) if files else None


def _table_folder(path: Path) -> Path | None:
    """The folder that holds the tables: this one, `data` or `default` in it, or the only folder in it."""
    inside = [os.fsdecode(name) for name in look(path).folders]
    below = [name for name in ("data", "default") if name in inside] or (inside if len(inside) == 1 else [])
    for folder in (path, *(path / name for name in below)):
        if find_parts(folder, is_table_file) is not None and not _holds_images(folder):
            return folder
    return None


def _holds_images(folder: Path) -> bool:
    """Whether there are images or class folders in a folder: then tables beside them are something else."""
    found = look(folder)
    below = [look(folder / os.fsdecode(name)) for name in found.folders]
    return bool(found.images) or any(inside.images or inside.folders for inside in below)


def _configs(path: Path) -> list[dict[str, Any]]:
    """The configurations in a README's front matter whose data files are tables that are there."""
    found = front_matter(path).get("configs")
    configs = [entry for entry in (found if isinstance(found, list) else []) if isinstance(entry, dict)]
    return [entry for entry in configs if any(_data_files(path, entry).values())]


def _data_files(path: Path, config: dict[str, Any]) -> dict[str, list[Path]]:
    """The tables of a configuration by split."""
    entries = config.get("data_files")
    if isinstance(entries, str):
        entries = [{"split": "train", "path": entries}]
    by_split: dict[str, list[Path]] = {}
    for entry in entries if isinstance(entries, list) else []:
        entry = {"split": "train", "path": entry} if isinstance(entry, str) else entry
        patterns = entry.get("path") if isinstance(entry, dict) else None
        for pattern in [patterns] if isinstance(patterns, str) else patterns or []:
            if not isinstance(pattern, str) or Path(pattern).is_absolute():
                continue
            files = sorted(file for file in path.glob(pattern) if is_table_file(file))
            by_split.setdefault(str(entry.get("split", "train")), []).extend(files)
    return by_split


def _of_config(path: Path, configs: list[dict[str, Any]], part: Part) -> Files | None:
    config = configs[0]
    if len(configs) > 1:
        default = [entry for entry in configs if entry.get("default") is True or entry.get("config_name") == "default"]
        if len(default) != 1:
            names = [str(entry.get("config_name")) for entry in configs]
            raise UserError(
                f"{path} holds {len(configs)} datasets: {', '.join(names[:10])}",
                why="its README describes them as configurations, and none as the default",
                remedy="name the folder or the files of one of them",
            )
        config = default[0]
    by_split = {split: files for split, files in _data_files(path, config).items() if files}
    split = split_of(list(by_split), part)
    if split is None and part == "train":
        if len(by_split) > 1:
            raise no_training_split(path, list(by_split))
        split = next(iter(by_split))
    if split is None:
        return None
    features = features_of_readme([path], str(config.get("config_name", "default")))
    return Files(complete(by_split[split]), features, (tested_by(by_split[split][0]),) if split == "test" else ())


def _features(folder: Path) -> Features:
    """The features in a folder's dataset_info.json."""
    if not (folder / INFO).is_file():
        return {}
    found = read_json(folder / INFO).get("features") or {}
    return found if isinstance(found, dict) else {}


def _saved_files(folder: Path) -> list[Path]:
    state = read_json(folder / STATE)
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


def read_json(file: Path) -> dict[str, Any]:
    try:
        found = json.loads(file.read_bytes())
    except (ValueError, RecursionError) as error:
        raise _unreadable(file, f"it is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise _unreadable(file, "it is not a JSON object")
    return found


def _unreadable(file: Path, why: str) -> UserError:
    return UserError(f"{file} does not describe a dataset", why=why, remedy="save the dataset again with save_to_disk")
