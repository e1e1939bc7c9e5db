"""Samples that are named in a list are left out: what `phalanx data verify` found, or a run's quarantine.tsv."""

import os
from dataclasses import dataclass, field
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
    """The names of a list, one `name<tab>reason` a line, and which of them were met."""

    path: Path
    names: set[str]
    met: set[str] = field(default_factory=set)

    def without(self, source: Labelled) -> Labelled:
        """The source without the samples that are named."""
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
        self.met.update(named[index] for index in left_out)
        return source.subset(kept)

    def _suspects(self, source: Labelled) -> Indices:
        """Samples whose names are worth a look: in large files each has to be read, so only in those that are named."""
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
        """What to tell the user once all splits were gone through."""
        notes = [f"{len(self.met):,} samples are left out, named in {self.path}"] if self.met else []
        unknown = sorted(self.names - self.met)
        if unknown:
            shown = ", ".join(unknown[:3]) + (" …" if len(unknown) > 3 else "")
            notes.append(f"{len(unknown):,} names in {self.path} are those of no sample here: {shown}")
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
    """A name as both sides have it: as it can be written to a list, and for a file wherever it is looked at from."""
    return os.path.normpath(Path.cwd() / printable(tab_separated([name])))
