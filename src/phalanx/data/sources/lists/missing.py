"""Files that a list names and that do not exist: left out up to a limit, as images that do not decode are."""

import os
from dataclasses import dataclass

import numpy as np

from phalanx.config.schema import DataConfig
from phalanx.data.order import Indices
from phalanx.data.sources.bad_images import allowed_bad
from phalanx.data.sources.folders import some
from phalanx.data.sources.lists.table import Table
from phalanx.data.sources.quarantine import read_quarantine
from phalanx.errors import UserError

REASON = "no such file"


@dataclass(frozen=True)
class Missing:
    """(name, reason) of the files of a list that do not exist, and notes for the user."""

    files: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()


def without_missing(table: Table, rows: Indices, config: DataConfig) -> tuple[Indices, Missing]:
    """(the rows whose files exist, the missing files). A pure function of list and files: all workers agree."""
    missing = np.intersect1d(rows, table.missing)
    if not len(missing):
        return rows, Missing()
    kept = np.setdiff1d(rows, missing)
    names = [table.names[row] for row in missing.tolist()]
    files = tuple((_path(table, name), REASON) for name in names)
    if config.quarantine is not None:
        known = read_quarantine(config.quarantine)
        names = [name for name, (file, _) in zip(names, files, strict=True) if not known.contains(file)]
    allowed = allowed_bad(len(rows), config.bad_images_cap)
    if not len(kept) or (names and (config.bad_images == "stop" or len(names) > allowed)):
        raise _refusal(table, names, len(rows), allowed, config)
    note = f"{len(names):,} of {len(rows):,} files in {table.path} do not exist and are left out: {some(names, 3)}"
    return kept, Missing(files, (note,) if names else ())


def _path(table: Table, name: bytes) -> str:
    return str((table.columns.place.root / os.fsdecode(name)).absolute())


def _refusal(table: Table, names: list[bytes], count: int, allowed: int, config: DataConfig) -> UserError:
    root = table.columns.place.root
    ending = table.columns.place.ending
    why = f"paths are taken from {root}" + (f", with {ending} at their end" if ending else "")
    if len(names) == count and config.root is None:
        why += ", and no folder beside the list has them"
    if config.bad_images == "stop":
        why += "; data.bad_images=stop refuses any"
    elif len(names) < count:
        why += f"; of {count:,} files, data.bad_images_cap={config.bad_images_cap:g} allows {allowed:,} to be missing"
    packed = table.path.with_suffix(".rec")
    remedy = f"give the packed images, {packed}; or " if table.path.suffix == ".lst" and packed.is_file() else ""
    remedy += "say which folder the paths start from with data.root, or correct them"
    if len(names) < count:
        remedy += "; `phalanx data verify LIST --out FILE` lists them all for data.quarantine"
    return UserError(
        f"{table.path} names {len(names):,} files that do not exist: {some(names)}", why=why, remedy=remedy
    )
