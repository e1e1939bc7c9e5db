"""Datasets of the Hugging Face hub by name, hf://USER/NAME: `datasets` loads them into its cache, and we read that."""

import functools
import os
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from phalanx.data.sources.labelled import Part
from phalanx.data.sources.open_request import OpenRequest
from phalanx.data.sources.shards.hf_files import no_training_split, split_of
from phalanx.data.sources.shards.shard_source import ShardSource
from phalanx.data.sources.shards.table_source import open_tables
from phalanx.errors import UserError

# As a path, hf:// becomes hf:/.
WRITTEN = re.compile(
    r"hf:/*(?:datasets/)?(?P<name>[\w.-]+(?:/[\w.-]+)?)"
    r"(?:@(?P<revision>[^?:\s]+))?(?:(?:\?config=|\?|:)(?P<config>[^?:@\s]+))?"
)
HOW_TO_WRITE = "write hf://USER/NAME, with @REVISION and :CONFIG after it where they are needed"


@dataclass(frozen=True)
class HubName:
    """The name of a dataset, and which of its configurations and revisions."""

    name: str
    config: str | None = None
    revision: str | None = None

    def __str__(self) -> str:
        revision, config = (f"@{self.revision}" if self.revision else ""), (f":{self.config}" if self.config else "")
        return f"hf://{self.name}{revision}{config}"


def is_hub_name(text: str) -> bool:
    return text.startswith("hf:")


def hub_name(text: str) -> HubName:
    """What a text such as hf://USER/NAME@REVISION:CONFIG names."""
    found = WRITTEN.fullmatch(text)
    if found is None:
        raise UserError(f"{text!r} does not name a dataset of the hub", why="its form is another", remedy=HOW_TO_WRITE)
    return HubName(found["name"], found["config"], found["revision"])


def open_hub(path: Path, part: Part, request: OpenRequest) -> ShardSource | None:
    """The training or validation part of a dataset of the hub; None where there is no such part."""
    named = hub_name(str(path))
    splits = _loaded(named)
    split = split_of(list(splits), part)
    if split is None and part == "train":
        raise no_training_split(named, list(splits))
    if split is None:
        return None
    loaded = splits[split]
    files = [Path(entry["filename"]) for entry in loaded.cache_files]
    source = open_tables(files, request, loaded.features.to_dict(), f"{named} {split}")
    notes = [f"{named} is read from {files[0].parent}"]
    if split == "test":
        notes.append(f"validation: the split test of {named} (there is no other)")
    return replace(source, notes=(*source.notes, *notes))


@functools.cache
def _loaded(named: HubName) -> dict[str, Any]:
    """The splits of a dataset, from the hub or from the cache of `datasets`."""
    try:
        import datasets
    except ImportError as error:
        raise UserError(
            f"{named} is a dataset of the Hugging Face hub, and the library `datasets` is not installed",
            why="it finds, downloads and keeps datasets of the hub",
            remedy="pip install 'phalanx[hub]'; or give a folder that save_to_disk wrote, or Parquet files",
        ) from error
    cache = Path(datasets.config.HF_DATASETS_CACHE)
    try:
        found = datasets.load_dataset(named.name, named.config, revision=named.revision)
    except Exception as error:  # of this library, of huggingface_hub, of http clients, of the system
        raise _not_loaded(named, error, cache) from error
    splits = dict(found)
    if not splits or not all(split.cache_files for split in splits.values()):
        raise UserError(
            f"{named} is not in files",
            why="`datasets` keeps it in memory, and training reads samples from files",
            remedy=f"save it with save_to_disk(FOLDER), and give that folder; {cache} would hold it otherwise",
        )
    return splits


def _not_loaded(named: HubName, error: Exception, cache: Path) -> UserError:
    said = f"{type(error).__name__}: {str(error).strip() or 'no reason'}"[:500]
    kinds = {kind.__name__ for kind in type(error).__mro__}
    what = f"{named} cannot be loaded"
    if "Config name is missing" in said or "BuilderConfig" in said:
        return UserError(what, why=said, remedy=f"name one of its configurations: hf://{named.name}:CONFIG")
    if "scripts are no longer supported" in said:
        return UserError(what, why=said, remedy=f"try its converted files: hf://{named.name}@refs/convert/parquet")
    if kinds & {"DatasetNotFoundError", "RepositoryNotFoundError", "GatedRepoError", "RevisionNotFoundError"}:
        return UserError(
            what, why=said, remedy=f"check the name; for a private or gated dataset run `hf auth login`. {HOW_TO_WRITE}"
        )
    if isinstance(error, ConnectionError | TimeoutError) or "Offline" in said or "Connect" in said:
        offline = "; HF_HUB_OFFLINE is set" if os.environ.get("HF_HUB_OFFLINE") else ""
        return UserError(
            f"{named} is not in the cache here, and the hub cannot be reached",
            why=f"{said}{offline}; the cache is {cache}",
            remedy=f"on a host with a network run `python -c \"import datasets; datasets.load_dataset('{named.name}')"
            ".save_to_disk('FOLDER')\"`, copy FOLDER here and give it as data; or share that cache (HF_HOME), which "
            "works offline",
        )
    return UserError(what, why=said, remedy=f"load it with `datasets` first, to see more; its cache is {cache}")
