"""Split words in names of files and folders: `train`, `Valid`, `testing`, `seg_train`, `train_set`, in any case."""

import re
from collections.abc import Iterable, Mapping
from typing import Literal

Split = Literal["train", "val", "test"]

WORDS: Mapping[str, Split] = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("val", "valid", "validation", "dev"), "val"),
    **dict.fromkeys(("test", "testing", "eval", "evaluation"), "test"),
}
# What people put beside a split word: seg_train, train_set, training-images, TrainData.
AFFIXES = (
    *("seg", "set", "sets", "data", "dataset", "split", "part", "folder", "dir"),
    *("image", "images", "img", "imgs", "picture", "pictures", "photos", "jpg", "jpeg", "png"),
)
_LONGEST_FIRST = sorted(WORDS, key=len, reverse=True)
_JOINED = re.compile(rf"({'|'.join(_LONGEST_FIRST)})({'|'.join(AFFIXES)})")
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")  # of seg_train, TrainSet, TRAIN and train2017


def split_word(name: str) -> Split | None:
    """The split in a file's name, by its last word that is one: `train` of `imagenet-training-003.tar`."""
    words = [word for word in _words(name) if word in WORDS]
    return WORDS[words[-1]] if words else None


def split_folders(names: Iterable[str]) -> dict[Split, list[str]]:
    """The folders of each split among the folders of a level; more than one of a split is for the caller to refuse.

    A plain split word comes first (`Train`), then one with a usual addition (`seg_train`, `train_set`), then several
    names that differ only in their split word (`flowers_train`, `flowers_test`).
    """
    names = list(names)
    words = {name: _words(name) for name in names}
    plain = _by_split({name: name.lower() for name in names if name.lower() in WORDS})
    usual = {name: _only_split(words[name]) for name in names if not set(words[name]) - set(AFFIXES) - set(WORDS)}
    alike = {name: _only_split(words[name]) for name in _alike(words)}
    found: dict[Split, list[str]] = {}
    for tier in (plain, _by_split(usual), _by_split(alike)):
        for split, folders in tier.items():
            found.setdefault(split, folders)
    return found


def _words(name: str) -> list[str]:
    """`asl_TrainSet2` → asl, train, set."""
    words = [word.lower() for word in _WORD.findall(name)]
    parts = [_JOINED.fullmatch(word) for word in words]
    return [
        piece for word, joined in zip(words, parts, strict=True) for piece in (joined.groups() if joined else [word])
    ]


def _only_split(words: list[str]) -> str | None:
    found = [word for word in words if word in WORDS]
    return found[0] if len(found) == 1 else None


def _by_split(words: Mapping[str, str | None]) -> dict[Split, list[str]]:
    found: dict[Split, list[str]] = {}
    for name, word in words.items():
        if word is not None:
            found.setdefault(WORDS[word], []).append(name)
    return found


def _alike(words: Mapping[str, list[str]]) -> list[str]:
    """Names that differ only in their split word, where one of them is of a training split."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for name, parts in words.items():
        word = _only_split(parts)
        if word is not None:
            groups.setdefault(tuple("" if part == word else part for part in parts), []).append(name)
    for group in groups.values():
        splits = {WORDS[word] for name in group if (word := _only_split(words[name])) is not None}
        if len(splits) > 1 and "train" in splits:
            return group
    return []
