"""Where the files of a list are: which folder its paths start from, and what they lack (an ending) or have too much."""

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from phalanx.data.sources.folders import IMAGE_ENDINGS
from phalanx.data.sources.splits import split_word
from phalanx.errors import UserError

USUAL_ENDINGS = (".jpg", ".jpeg", ".png", ".JPG", ".JPEG", ".PNG")
ENDINGS = (*USUAL_ENDINGS, *(os.fsdecode(end) for end in IMAGE_ENDINGS if os.fsdecode(end) not in USUAL_ENDINGS))
_IMAGE_FOLDERS = ("images", "image", "imgs", "img", "jpg", "jpeg", "png", "jpegimages", "photos", "pictures", "data")
_TRIED = 8  # names of a list that are looked for in each folder
_MAX_FOLDERS = 100  # beside a list; with more, they are classes and not places of images


@dataclass(frozen=True)
class Place:
    """How a path in a list becomes the path of a file, and how many of the paths that were tried are there."""

    root: Path
    inside: tuple[str, ...] = ("",)  # folders in the root that are tried in this order
    cut: str = ""  # the beginning of paths that the files do not have
    ending: str = ""  # what the paths lack
    backslashes: bool = False
    found: int = 0
    tried: int = 1
    flat: bool = False  # whether only the last part of a path counts

    @property
    def all_found(self) -> bool:
        return self.found == self.tried

    def has(self, name: str) -> bool:
        """Whether this name of the list is a file."""
        name = name.replace("\\", "/") if self.backslashes else name
        paths = (os.path.join(self.root, inside, name.removeprefix(self.cut)) for inside in self.inside)  # noqa: PTH118
        return bool(name) and any(_is_file(path + self.ending) or _is_file(path) for path in paths)


@dataclass(frozen=True)
class _Folder:
    """A folder that may be the root. Of those that are not `clear`, none is more likely than another."""

    root: Path
    inside: tuple[str, ...] = ("",)
    clear: bool = True


def find_place(path: Path, names: Sequence[str], root: Path | None) -> Place:
    """The place where most of these names of a list are files: the root that the user gave, or the likeliest folder."""
    tried = _spread([name for name in dict.fromkeys(name.strip() for name in names) if name and "\n" not in name])
    folders = [_Folder(root.expanduser())] if root is not None else list(_folders(path))
    best = Place(folders[0].root)
    for backslashes in (False, True) if any("\\" in name for name in tried) else (False,):
        written = [name.replace("\\", "/") for name in tried] if backslashes else tried
        for cut in _beginnings(written):
            for folder in folders:
                if _contradicts(cut, folder):
                    continue
                place = _tried(folder, written, cut, backslashes)
                if place.found > best.found:
                    _refuse_equal(path, place, folder, folders, written)
                    best = place
                if best.all_found:
                    return best
    return best


def _contradicts(cut: str, folder: _Folder) -> bool:
    """Whether paths name another split than a folder: val/1.jpg is not train/1.jpg."""
    written, there = split_word(cut), split_word(folder.root.name)
    return written is not None and there is not None and written != there


def _spread(names: list[str]) -> list[str]:
    count = min(_TRIED, len(names))
    return [names[i * len(names) // count] for i in range(count)]


def _beginnings(names: list[str]) -> list[str]:
    """What all paths begin with and may have too much: nothing; `/`, `/home/`, `/home/ann/` …; `C:/`, `C:/data/` …"""
    low, high = min(names, default=""), max(names, default="")
    common = low[: next((i for i, pair in enumerate(zip(low, high, strict=False)) if pair[0] != pair[1]), len(low))]
    ends = [i + 1 for i, letter in enumerate(common) if letter == "/"]
    return ["", *(common[:end] for end in ends)]


def _tried(folder: _Folder, names: list[str], cut: str, backslashes: bool) -> Place:
    endings, found = Counter[str](), 0
    for name in names:
        rest = name.removeprefix(cut)
        paths = [os.path.join(folder.root, inside, rest) for inside in folder.inside]  # noqa: PTH118
        lacking = _lacking(paths)
        if lacking is not None:
            found += 1
            endings[lacking] += 1
    ending = endings.most_common(1)[0][0] if endings else ""
    return Place(folder.root, folder.inside, cut, ending, backslashes, found, len(names))


def _lacking(paths: list[str]) -> str | None:
    """The ending that one of these paths lacks to be a file; empty if it lacks none; None if there is no file."""
    if any(_is_file(path) for path in paths):
        return ""
    paths = [path for path in paths if os.path.isdir(os.path.dirname(path))]  # noqa: PTH112, PTH120
    if not paths or paths[0].lower().endswith(ENDINGS):
        return None
    return next((ending for ending in ENDINGS if any(_is_file(path + ending) for path in paths)), None)


def _is_file(path: str) -> bool:
    try:
        return os.path.isfile(path)  # noqa: PTH113
    except ValueError:  # a zero byte, or a letter that the file system cannot write
        return False


def _folders(path: Path) -> Iterator[_Folder]:
    """Folders that the paths of a list may start from, the likeliest first."""
    own, split = path.parent, split_word(path.name)
    below = _folders_in(own)
    yield _Folder(own)
    likely = [own / path.stem] if path.stem in below else []
    likely += [own / name for name in below if split_word(name) == (split or "train")]
    likely += _image_folders(own, below)
    for folder in dict.fromkeys(likely):
        yield _Folder(folder)
        yield from (_Folder(folder / name) for name in _inside(folder, split))
    yield from _numbered(own, below)
    yield from (_Folder(own / name, clear=False) for name in below if _may_be(name, split) and own / name not in likely)
    above = own.resolve().parent
    yield _Folder(above)
    beside = _folders_in(above)
    likely = [above / name for name in beside if name == path.stem or (split and split_word(name) == split)]
    for folder in dict.fromkeys([*likely, *_image_folders(above, beside)]):
        yield _Folder(folder)
        yield from (_Folder(folder / name) for name in _inside(folder, split))


def _folders_in(folder: Path) -> list[str]:
    """The names of the folders in a folder, in order; none if there are too many."""
    try:
        with os.scandir(folder) as entries:
            names = sorted(entry.name for entry in entries if not entry.name.startswith(".") and entry.is_dir())
    except OSError:
        return []
    return names if len(names) <= _MAX_FOLDERS else [name for name in names if split_word(name)][:_MAX_FOLDERS]


def _image_folders(folder: Path, names: list[str]) -> list[Path]:
    return [folder / name for usual in _IMAGE_FOLDERS for name in names if name.lower() == usual]


def _inside(folder: Path, split: str | None) -> list[str]:
    """Folders in a likely folder that are as likely: train/train (of a zip file), train/images, images/train."""
    names = _folders_in(folder)
    same = [name for name in names if name == folder.name or (split is not None and split_word(name) == split)]
    return list(dict.fromkeys([*same, *(place.name for place in _image_folders(folder, names))]))


def _numbered(folder: Path, names: list[str]) -> Iterator[_Folder]:
    """Folders that only differ in their numbers and hold the images together: images_001/images, images_002/images …"""
    groups: dict[str, list[str]] = {}
    for name in names:
        without = "".join(letter for letter in name if not letter.isdigit())
        groups.setdefault(without, []).append(name)
    for group in groups.values():
        if len(group) > 1:
            yield _Folder(folder, tuple(group))
            yield _Folder(folder, tuple(f"{name}/images" for name in group))


def _may_be(folder: str, split: str | None) -> bool:
    """Whether images of a list may be in a folder of this name: those of a training list are not in `test`."""
    return split != "train" or split_word(folder) in (None, "train")


def _refuse_equal(path: Path, place: Place, folder: _Folder, folders: list[_Folder], names: list[str]) -> None:
    """Refuse to choose between folders that have files of the same names, and nothing tells which are meant."""
    if folder.clear:
        return
    others = [
        other.root
        for other in folders
        if not other.clear and other != folder and _tried(other, names, place.cut, False).found >= place.found
    ]
    if others:
        seen = ", ".join(str(root) for root in (place.root, *others[:3]))
        raise UserError(
            f"the images of {path} may be in several folders: {seen}",
            why=f"each of them has files of these names: {', '.join(names[:3])}",
            remedy=f"say which folder the paths of the list start from, such as data.root={place.root}",
        )
