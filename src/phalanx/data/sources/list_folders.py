"""A list of images, or a folder with lists beside its images, as training and validation data."""

from dataclasses import replace
from pathlib import Path

from phalanx.config.schema import DataConfig
from phalanx.data.sources.labelled import Labelled
from phalanx.data.sources.layouts.lists_beside import LIST_ENDINGS, FoundList, Lists, find_lists
from phalanx.data.sources.lists.beside import find_val_list
from phalanx.data.sources.lists.open import open_list, open_list_val
from phalanx.data.sources.open_request import OpenRequest
from phalanx.errors import UserError


def is_list(path: Path) -> bool:
    """A list, or a folder with lists beside its images: these know better than folders what the classes are."""
    if path.is_dir():
        return find_lists(path) is not None
    return path.is_file() and path.suffix.lower() in LIST_ENDINGS


def open_lists(path: Path, request: OpenRequest) -> Labelled:
    """A list, or the training list of a folder; with notes on lists beside it that cannot be used."""
    if not path.is_dir():
        source = _open(path, request)
        beside = request.classes is None and request.config.val is None
        val, notes = find_val_list(path, request.config) if beside else (None, ())
        return source if val is not None else replace(source, notes=(*source.notes, *notes))
    found = _lists_in(path, request)
    source = _open(found.train.path, request, found.train.root)
    told = [f"labels: {found.train.path}, found beside the images (for the folders instead: folder:{path})"]
    unused = None if found.val is None else _why_unused(found, replace(request, classes=source.classes))
    told += [f"{found.val.path} is not used: {unused}"] if found.val is not None and unused else []
    return replace(source, notes=(*source.notes, *told))


def open_lists_val(path: Path, request: OpenRequest) -> Labelled | None:
    """The validation rows of a list, the list beside it (val.txt of train.txt), or the validation list of a folder."""
    if not path.is_dir():
        inside = val_in_list(path, request)
        val, notes = (None, ()) if inside is not None else find_val_list(path, request.config)
        if val is None:
            return inside
        source = _open(val, request)
        return replace(source, notes=(*notes, *source.notes))
    found = _lists_in(path, request)
    if found.val is None or _why_unused(found, request):
        return _val_rows(found.train, request)
    source = _open(found.val.path, request, found.val.root)
    told = [f"validation: {found.val.path}, found beside {found.train.path.name}"]
    told += [f"{found.test.path} is not used, since there is {found.val.path.name}"] if found.test else []
    return replace(source, notes=(*source.notes, *told))


def val_in_list(path: Path, request: OpenRequest) -> Labelled | None:
    """The validation rows of a list, if a column says which rows these are."""
    return _val_rows(FoundList(path, path.parent), request)


def _val_rows(found: FoundList, request: OpenRequest) -> Labelled | None:
    config = request.config
    if config.root is None and found.root != found.path.parent:
        config = config.model_copy(update={"root": found.root})
    return open_list_val(found.path, request.classes, channels=request.channels, pool=request.pool, config=config)


def _open(path: Path, request: OpenRequest, root: Path | None = None) -> Labelled:
    config: DataConfig = request.config
    if request.classes is not None:  # data.root is that of the training data, and only likely that of other data
        config, root = config.model_copy(update={"root": None}), root or config.root
    return open_list(
        path, request.classes, channels=request.channels, pool=request.pool, config=config, root=root, part="train"
    )


def _why_unused(found: Lists, request: OpenRequest) -> str:
    """Why a test list cannot serve as validation: those of competitions have no labels."""
    if found.val is None or found.val_split != "test":
        return ""
    try:
        _open(found.val.path, request, found.val.root)
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
