"""Several files as one dataset: `train-{000..127}.tar`, `shards/*.rec`, or a folder with files of each split."""

import glob
import itertools
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from phalanx.data.sources.splits import Split, split_folders, split_word
from phalanx.errors import UserError

VAL_SPLITS: tuple[Split, ...] = ("val", "test")  # the first that is there is used
RANGE = re.compile(r"\{(\d+)\.\.(\d+)\}")
# Files of the Hugging Face hub may have a hash after it: train-00000-of-00002-0ee3f9b1a2c4d5e6.parquet.
OF_HOW_MANY = re.compile(r"(.*?)-(\d{5})-of-(\d{5})(?:-[0-9a-f]{16})?(.*)")
MAX_FILES = 1_000_000


def is_pattern(text: str) -> bool:
    """Whether a text that is not an existing path is a pattern of several."""
    return RANGE.search(text) is not None or glob.has_magic(text)


def expanded(pattern: Path) -> list[Path]:
    """The files of a pattern: the path itself if it exists; else its ranges and globs, in order."""
    if pattern.exists():
        return [pattern]
    names = each_number(str(pattern))
    if not any(glob.has_magic(name) for name in names):
        files = [Path(name) for name in names]
        _refuse_missing(pattern, [str(file) for file in files if not file.is_file()])
        return files
    # Path.glob refuses patterns that begin at the root.
    found = [sorted(glob.glob(name)) for name in names]  # noqa: PTH207
    if not any(found):
        raise UserError(f"no file matches {pattern}", why=f"seen from {Path.cwd()}", remedy="check the pattern")
    _refuse_missing(pattern, [name for name, matches in zip(names, found, strict=True) if not matches])
    files = [path for path in map(Path, dict.fromkeys(itertools.chain(*found))) if path.is_file()]
    if not files:
        raise UserError(f"no file matches {pattern}", why="only folders do", remedy="let the pattern match files")
    return files


def each_number(text: str) -> list[str]:
    """The text with each number of its ranges in turn, with as many digits as the first number."""
    pieces = RANGE.split(text)
    choices = [[pieces[0]]]
    for first, last, rest in zip(pieces[1::3], pieces[2::3], pieces[3::3], strict=True):
        low, high = int(first), int(last)
        if not 0 <= high - low < MAX_FILES:
            raise UserError(
                f"{text} has the range {first}..{last}",
                why="a range goes up from its first number to its last, and names at most a million files",
                remedy="write it as {000..127}",
            )
        choices += [[f"{number:0{len(first)}d}" for number in range(low, high + 1)], [rest]]
    if math.prod(len(choice) for choice in choices) > MAX_FILES:
        raise UserError(f"{text} names too many files", why="a million is the most", remedy="use smaller ranges")
    return ["".join(parts) for parts in itertools.product(*choices)]


def _refuse_missing(pattern: Path, missing: list[str]) -> None:
    if missing:
        shown = ", ".join(missing[:5]) + (" …" if len(missing) > 5 else "")
        raise UserError(
            f"{len(missing):,} files of {pattern} are missing: {shown}",
            why=f"all files of the pattern must exist (seen from {Path.cwd()})",
            remedy="copy or download them, or name only the files that exist",
        )


@dataclass(frozen=True)
class Parts:
    """The files of a folder by split, in the order of their names, and notes for the user."""

    train: list[Path]
    val: list[Path]
    train_notes: tuple[str, ...] = ()
    val_notes: tuple[str, ...] = ()


def find_parts(folder: Path, is_shard: Callable[[Path], bool]) -> Parts | None:
    """The shards in a folder by the split in their names; or those in train/, val/ and so on."""
    by_split: dict[Split | None, list[Path]] = {}
    for path in _shards_in(folder, is_shard):
        by_split.setdefault(split_word(path.name), []).append(path)
    if not by_split:
        names = (path.name for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
        for split, folders in split_folders(sorted(names)).items():
            if files := [file for name in folders for file in _shards_in(folder / name, is_shard)]:
                by_split[split] = files
    return _by_split(folder, by_split) if by_split else None


def _shards_in(folder: Path, is_shard: Callable[[Path], bool]) -> list[Path]:
    if not folder.is_dir():
        return []
    return sorted(path for path in folder.iterdir() if not path.name.startswith(".") and is_shard(path))


def _by_split(folder: Path, by_split: dict[Split | None, list[Path]]) -> Parts:
    unnamed = by_split.get(None, [])
    train = by_split.get("train") or unnamed
    val_split = next((split for split in VAL_SPLITS if split in by_split), None)
    val = by_split[val_split] if val_split else []
    if not train and len(by_split) == 1:
        return Parts(val, [], (f"all files in {folder} are called {val_split}, so they are taken as they are",))
    notes = []
    if unnamed and unnamed is not train:
        first = unnamed[0].name
        notes.append(f"{len(unnamed):,} files in {folder} have no split in their names and are left out: {first}")
    val_notes = (tested_by(val[0]),) if val_split == "test" else ()
    if val_split == "val" and "test" in by_split:
        unused = by_split["test"]
        val_notes = (f"{len(unused):,} test files in {folder} are not used, since there is val: {unused[0].name} …",)
    return Parts(train, val, tuple(notes), val_notes)


def tested_by(path: Path) -> str:
    """A note for test data that serves as validation data."""
    return f"validation: {path} (there is no val beside it)"


def complete(files: list[Path]) -> list[Path]:
    """The files found in a folder, if all of them are there: names as train-00003-of-01024 say how many there are."""
    groups: dict[tuple[str, str, str], set[int]] = {}
    for path in files:
        if match := OF_HOW_MANY.fullmatch(path.name):
            groups.setdefault((match[1], match[3], match[4]), set()).add(int(match[2]))
    for (stem, total, rest), numbers in groups.items():
        missing = [number for number in range(int(total)) if number not in numbers]
        if missing:
            shown = ", ".join(f"{stem}-{number:05d}-of-{total}{rest}" for number in missing[:5])
            present = f"{files[0].parent}/{stem}-*-of-{total}{rest}"
            raise UserError(
                f"{len(missing):,} of {int(total):,} files are missing in {files[0].parent}: {shown}",
                why="the names of the others say how many there are",
                remedy=f"copy or download them; or use what is there: '{present}'",
            )
    return files
