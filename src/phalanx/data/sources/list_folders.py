"""A list of images, or a folder with lists beside its images, as training and validation data."""

from dataclasses import replace
from pathlib import Path

from phalanx.data.sources.labelled import Labelled
from phalanx.data.sources.layouts.lists_beside import LIST_ENDINGS, FoundList, Lists, find_lists
from phalanx.data.sources.lists import open_list
from phalanx.data.sources.open_request import OpenRequest
from phalanx.data.sources.splits import names_of_validation
from phalanx.errors import UserError


def is_list(path: Path) -> bool:
    """A list, or a folder with lists beside its images: these know better than folders what the classes are."""
    if path.is_dir():
        return find_lists(path) is not None
    return path.is_file() and path.suffix.lower() in LIST_ENDINGS


def open_lists(path: Path, request: OpenRequest) -> Labelled:
    """A list, or the training list of a folder."""
    if not path.is_dir():
        return _open(FoundList(path, path.parent), request)
    found = _lists_in(path, request)
    source = _open(found.train, request)
    notes = [f"labels: {found.train.path}, found beside the images (for the folders instead: folder:{path})"]
    unused = None if found.val is None else _why_unused(found, replace(request, classes=source.classes))
    notes += [f"{found.val.path} is not used: {unused}"] if found.val is not None and unused else []
    return replace(source, notes=(*source.notes, *notes))


def open_lists_val(path: Path, request: OpenRequest) -> Labelled | None:
    """The validation list of a folder; or the one beside a training list."""
    if not path.is_dir():
        return _open_beside(path, request)
    found = _lists_in(path, request)
    if found.val is None or _why_unused(found, request):
        return None
    source = _open(found.val, request)
    notes = [f"validation: {found.val.path}, found beside {found.train.path.name}"]
    notes += [f"{found.test.path} is not used, since there is {found.val.path.name}"] if found.test else []
    return replace(source, notes=(*source.notes, *notes))


def _open_beside(path: Path, request: OpenRequest) -> Labelled | None:
    """The validation list beside a training list: val.txt of train.txt, val_list.txt of train_list.txt."""
    val = next((other for name in names_of_validation(path.name) if (other := path.with_name(name)).is_file()), None)
    if val is None:
        return None
    return replace(open_lists(val, request), notes=(f"validation: {val}, found beside {path.name}",))


def _open(found: FoundList, request: OpenRequest) -> Labelled:
    return open_list(found.path, request.classes, channels=request.channels, pool=request.pool, root=found.root)


def _why_unused(found: Lists, request: OpenRequest) -> str:
    """Why a test list cannot serve as validation: those of competitions have no labels."""
    if found.val is None or found.val_split != "test":
        return ""
    try:
        _open(found.val, request)
    except UserError as error:
        return error.what
    return ""


def _lists_in(folder: Path, request: OpenRequest) -> Lists:
    found = find_lists(folder, request.tree)
    if found is None:
        raise UserError(
            f"{folder} has no list of its images",
            why="a list has lines `path label`, and its paths exist beside it",
            remedy="name the list itself: list:FILE; for class folders: folder:PATH",
        )
    return found
