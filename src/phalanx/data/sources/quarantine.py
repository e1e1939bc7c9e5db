"""Quarantine: leaves out the samples in a list of `phalanx data verify`, or in a run's quarantine.tsv."""

import os
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from phalanx.data.order import Indices
from phalanx.data.sources.encoded import EncodedSubset
from phalanx.data.sources.labelled import Labelled
from phalanx.data.sources.shards.shard_source import ShardSource
from phalanx.errors import UserError
from phalanx.observe.tables import printable, tab_separated


@dataclass
class Quarantine:
    """The names in a list, one `name<tab>reason` per line, and those that were found in the data."""

    path: Path
    names: set[str]
    found: set[str] = field(default_factory=set)

    def without(self, source: Labelled) -> Labelled:
        """The source without the samples in the list."""
        if source.left_out:
            absent = [(name, reason) for name, reason in source.left_out if not self.contains(name)]
            self.found.update({_key(name) for name, _ in source.left_out} & self.names)
            source = replace(source, left_out=tuple(absent))
        named = {index: _key(source.name(index)) for index in self._suspects(source).tolist()}
        left_out = [index for index, name in named.items() if name in self.names]
        kept = np.setdiff1d(np.arange(len(source)), left_out)
        if len(kept) == len(source):
            return source
        if not len(kept):
            raise UserError(
                f"every sample is in the quarantine list {self.path}",
                why=f"it names all {len(source):,} samples of: {source.description}",
                remedy="leave data.quarantine out, or shorten the list",
            )
        self.found.update(named[index] for index in left_out)
        return source.subset(kept)

    def contains(self, name: str) -> bool:
        """Whether a sample is in the list."""
        return _key(name) in self.names

    def _suspects(self, source: Labelled) -> Indices:
        """Samples that may be in the list. Names in shards have to be read, so only in shards that the list names."""
        if isinstance(source, EncodedSubset):
            return np.flatnonzero(np.isin(source.chosen, self._suspects(source.parent)))
        if not isinstance(source, ShardSource):
            return np.arange(len(source))
        ends = [*source.starts[1:], len(source)]
        ranges = [
            np.arange(start, end)
            for shard, start, end in zip(source.shards, source.starts, ends, strict=True)
            if any(name.startswith(_key(str(shard.path))) for name in self.names)
        ]
        return np.concatenate([np.empty(0, np.int64), *ranges])

    def notes(self) -> list[str]:
        """Notes for the user, after all splits."""
        notes = [f"{len(self.found):,} samples are left out, named in {self.path}"] if self.found else []
        unknown = sorted(self.names - self.found)
        if unknown:
            shown = ", ".join(unknown[:3]) + (" …" if len(unknown) > 3 else "")
            notes.append(f"{len(unknown):,} names in {self.path} are not names of samples here: {shown}")
        return notes


def read_quarantine(path: Path) -> Quarantine:
    try:
        text = path.expanduser().read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise UserError(
            f"the quarantine list {path} cannot be read",
            why=error.strerror or str(error),
            remedy="check the path; `phalanx data verify PATH --out FILE` makes such a list",
        ) from error
    names = {_key(line.partition("\t")[0]) for line in text.split("\n") if line.strip()}
    return Quarantine(path, names)


def _key(name: str) -> str:
    """A name to compare: printable, as in a list, and of a file with its absolute path."""
    if "://" in name:
        return printable(tab_separated([name]))
    return os.path.normpath(Path.cwd() / printable(tab_separated([name])))
