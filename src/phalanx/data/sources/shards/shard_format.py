"""Shard formats: how their files are recognised, and those of each split found."""

import os
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from phalanx.data.sources.folders import look
from phalanx.data.sources.labelled import Labelled
from phalanx.data.sources.open_request import OpenRequest
from phalanx.data.sources.shards.find_files import Parts, complete, expanded, find_parts, is_pattern
from phalanx.data.sources.shards.unpack import start_of
from phalanx.data.sources.splits import split_word
from phalanx.errors import UserError

START_BYTES = 512  # enough to recognise any of the formats


@dataclass(frozen=True)
class ShardFormat:
    """A format of shards, which users name as a file, a glob, a range, or a folder with such files."""

    name: str
    file_names: re.Pattern[str]
    begins_so: Callable[[bytes], bool]
    open: Callable[[list[Path], OpenRequest], Labelled]

    def recognises(self, path: Path) -> bool:
        if path.is_dir():
            # Archives beside the class folders that they were unpacked to do not count.
            return find_parts(path, self._is_shard) is not None and not _holds_class_folders(path)
        if not path.exists() and not is_pattern(str(path)):
            return False
        return all(self._has_name(file) or self._has_content(file) for file in expanded(path))

    def train(self, path: Path, request: OpenRequest) -> Labelled:
        if not path.is_dir():
            return self.open(self._checked(expanded(path)), request)
        parts = self._parts(path)
        if not parts.train:
            raise UserError(
                f"{path} holds no {self.name} files for training",
                why="their names are of several other splits: " + ", ".join(file.name for file in parts.val[:3]),
                remedy="name the files, such as 'FOLDER/*'",
            )
        return _noted(self.open(complete(parts.train), request), parts.train_notes)

    def val(self, path: Path, request: OpenRequest) -> Labelled | None:
        """The validation files of a folder; or, for training files, those beside them."""
        if path.is_dir():
            parts = self._parts(path)
            return _noted(self.open(complete(parts.val), request), parts.val_notes) if parts.val else None
        files = expanded(path)
        folders = {file.parent for file in files}
        if len(folders) != 1 or any(split_word(file.name) != "train" for file in files):
            return None
        val = self._parts(folders.pop()).val
        if not val:
            return None
        found = val[0] if len(val) == 1 else f"{len(val):,} files ({val[0]} …)"
        return _noted(self.open(complete(val), request), (f"validation: {found}, found beside the training data",))

    def _parts(self, folder: Path) -> Parts:
        return find_parts(folder, self._is_shard) or Parts([], [])

    def _is_shard(self, path: Path) -> bool:
        """Whether a file of a folder is a shard: by its name, and without an ending also by its content."""
        if not self._has_name(path) or not path.is_file():
            return False
        return "." in path.name or self._has_content(path)

    def _has_name(self, path: Path) -> bool:
        return self.file_names.search(path.name.lower()) is not None

    def _has_content(self, path: Path) -> bool:
        return self.begins_so(start_of(path, START_BYTES))

    def _checked(self, files: list[Path]) -> list[Path]:
        odd = [file for file in files if not (self._has_name(file) or self._has_content(file))]
        if odd and len(files) > 1:
            raise UserError(
                f"{odd[0]} is not a {self.name} file",
                why=f"the {len(files):,} files are read as one dataset, and it has neither the name nor the content",
                remedy="use a pattern that matches only data files",
            )
        return files


def _holds_class_folders(path: Path) -> bool:
    for name in look(path).folders:
        inside = look(path / os.fsdecode(name))
        if inside.images or inside.folders:
            return True
    return False


def _noted(source: Labelled, notes: tuple[str, ...]) -> Labelled:
    return replace(source, notes=(*source.notes, *notes))
