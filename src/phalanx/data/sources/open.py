"""Opening data: from `data.source` (`digits`, a path, FORMAT:PATH) to a training and a validation split."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from phalanx.config.schema import DataConfig
from phalanx.data.sources.class_names import find_naming, known_in_order, places_of
from phalanx.data.sources.dataset import open_dataset, open_dataset_val
from phalanx.data.sources.divide import divide
from phalanx.data.sources.encoded import decode_pool, decoded_as, slow_decoding
from phalanx.data.sources.folders import FileSource
from phalanx.data.sources.formats import FORMATS, HUB, USER_CODE, recognise
from phalanx.data.sources.holdout import are_numbers, with_classes
from phalanx.data.sources.labelled import Labelled, Part
from phalanx.data.sources.manifest import Manifest, packed
from phalanx.data.sources.multi_label import judged_classes, labelled_as, with_more_classes
from phalanx.data.sources.one_class import one_class, only_class
from phalanx.data.sources.open_request import OpenRequest
from phalanx.data.sources.packed_folders import open_packed_folders
from phalanx.data.sources.quarantine import read_quarantine
from phalanx.errors import UserError


@dataclass(frozen=True)
class Splits:
    """The data of a run, and notes for the user about how it was found."""

    train: Labelled
    val: Labelled
    notes: list[str]
    test: Labelled | None = None  # the data's own validation part, where a fold is validated instead


def open_data(config: DataConfig, *, threads: int) -> Splits:
    """The training and validation splits of a run, under the same classes, channels and statistics.

    `threads` decode compressed images, for both splits together; with 0 the calling thread decodes.
    """
    whole, own_val, notes = _opened(config, threads)
    if (only := only_class(whole)) is not None:
        raise one_class(whole, only, config.source, recognise(config.source, config.remote_options)[1])
    train, val, test, more = divide(whole, own_val, config)
    judged = [val] if test is None else [val, test]
    if val.multi_label:
        more = [*more, *judged_classes(val, "the validation data")]
    judged = [replace(part, image_size=train.image_size, mean=train.mean, std=train.std) for part in judged]
    # Last, so that leaving out one sample does not move others between the splits.
    (train, val, *others), left_out = _without_quarantined(config, [train, *judged])
    return Splits(train, val, [*notes, *more, *left_out], *others)


def open_parts(config: DataConfig, *, threads: int) -> tuple[dict[Part, Labelled], list[str]]:
    """The splits of the data itself, under the same classes, and notes. There is no holdout of a single split."""
    train, val, notes = _opened(config, threads)
    if alone := only_class(train):
        notes.append(f"all {len(train):,} training images are of one class, {alone!r}: training refuses such data")
    manifest = _found(config.source, config)[2]
    only: Part = "train" if manifest is None else next(iter(manifest.splits))
    parts: dict[Part, Labelled] = {only: train} if val is None else {"train": train, "val": val}
    kept, left_out = _without_quarantined(config, list(parts.values()))
    return dict(zip(parts, kept, strict=True)), [*notes, *left_out]


def open_split(text: str, config: DataConfig, classes: list[str], *, threads: int) -> Labelled:
    """One dataset to evaluate a model of these classes on: its validation part, or all of it where it has none."""
    request = OpenRequest(config, config.channels, decode_pool(threads), classes)
    with _explain_read_errors(text):
        source = _open_one(text, request)
    source, matched = with_classes(source, classes, text)
    source, labelled = labelled_as(config, source, text)
    (kept,), left_out = _without_quarantined(config, [source])
    return replace(decoded_as(config, kept), notes=(*source.notes, *matched, *labelled, *left_out))


def open_whole(text: str, config: DataConfig, *, threads: int) -> dict[Part, Labelled]:
    """All parts of a dataset, under its own classes. A path of a file names only what is in it."""
    request = OpenRequest(config, config.channels, decode_pool(threads))
    with _explain_read_errors(text):
        name, path, manifest = _found(text, config)
        train = _train(name, path, manifest, request)
        if manifest is not None and "train" not in manifest.splits:
            return {"val": train}
        request = replace(request, classes=train.classes)
        val = _val(name, path, manifest, request) if path.is_dir() or name == USER_CODE else None
    return {"train": train} if val is None else {"train": train, "val": val}


def _opened(config: DataConfig, threads: int) -> tuple[Labelled, Labelled | None, list[str]]:
    """(training part, validation part if there is one, notes), under the same classes and channels."""
    request = OpenRequest(config, config.channels, decode_pool(threads))
    with _explain_read_errors(config.source):
        name, path, manifest = _found(config.source, config)
        train = _train(name, path, manifest, request)
    notes = [*train.notes]
    request = replace(request, channels=train.channels, classes=train.classes)
    with _explain_read_errors(config.source):
        val = _val(name, path, manifest, request) if config.val is None else None
    if val is not None:
        notes += [note for note in val.notes if note not in notes]
        if are_numbers(train.classes) and are_numbers(val.classes):
            # Both parts are of one dataset, and only the labels say how many classes it has.
            train = with_more_classes(train, max(train.classes, val.classes, key=len))
        val, matched = with_classes(val, train.classes, f"the validation data ({config.source})")
        notes += matched
    naming = find_naming(train, config, places_of(path, train) if _may_have_names(name, manifest) else [])
    train, val = naming.of(train), None if val is None else naming.of(val)
    notes += naming.notes
    if config.val is not None:
        with _explain_read_errors(config.val):
            val = _open_one(config.val, replace(request, classes=train.classes))
        val, matched = with_classes(val, train.classes, f"the validation data ({config.val})")
        notes += [*val.notes, *matched]
    if val is not None:
        val, labelled = labelled_as(config, val, "the validation data")
        notes += labelled
    train, labelled = labelled_as(config, train, config.source)
    notes += labelled
    _refuse_unused_labels(config, val)
    notes += slow_decoding(train)
    notes = list(dict.fromkeys(notes))  # both parts may have the same to say
    return decoded_as(config, train), None if val is None else decoded_as(config, val), notes


def _found(text: str, config: DataConfig) -> tuple[str, Path, Manifest | None]:
    """(format, path, manifest if it was packed) of `data.source`. An incomplete pack is refused."""
    name, path = recognise(text, config.remote_options)
    has_path = name != USER_CODE and FORMATS[name].has_path
    return name, path, packed(path, salvage=config.salvage) if has_path else None


def _may_have_names(name: str, manifest: Manifest | None) -> bool:
    """Whether files beside the data may name its classes: packed data has its names already."""
    return manifest is None and name != USER_CODE and FORMATS[name].has_path


def _train(name: str, path: Path, manifest: Manifest | None, request: OpenRequest) -> Labelled:
    """The training part at a path, or everything."""
    if name == USER_CODE:
        return open_dataset(str(path), request)
    if manifest is None:
        return FORMATS[name].train(path, request)
    only_val = None if "train" in manifest.splits else _packed_val(name, path, manifest, request)
    if only_val is not None:
        return only_val
    request = _request_packed(manifest, request)
    if manifest.options.form == "folder":
        return _as_packed(open_packed_folders(path, "train", manifest, request), manifest)
    return _as_packed(FORMATS[name].train(path, request), manifest)


def _val(name: str, path: Path, manifest: Manifest | None, request: OpenRequest) -> Labelled | None:
    """The validation part at a path, if there is one beside a training part."""
    if name == USER_CODE:
        return open_dataset_val(str(path), request)
    if manifest is None:
        return FORMATS[name].val(path, request)
    return _packed_val(name, path, manifest, request) if len(manifest.splits) == 2 else None


def _packed_val(name: str, path: Path, manifest: Manifest, request: OpenRequest) -> Labelled | None:
    request = _request_packed(manifest, request)
    if manifest.options.form == "folder":
        return _as_packed(open_packed_folders(path, "val", manifest, request), manifest)
    val = FORMATS[name].val(path, request)
    return None if val is None else _as_packed(val, manifest)


def _request_packed(manifest: Manifest, request: OpenRequest) -> OpenRequest:
    return replace(request, channels=request.channels or manifest.channels, classes=None)


def _as_packed(source: Labelled, manifest: Manifest) -> Labelled:
    """Packed data has the class names, image size and statistics of its source: shards only number the classes."""
    source = replace(with_more_classes(source, manifest.classes), extent=manifest.extent)
    if source.channels != manifest.channels:
        return source
    return replace(source, image_size=manifest.image_size, mean=tuple(manifest.mean), std=tuple(manifest.std))


def _without_quarantined(config: DataConfig, splits: list[Labelled]) -> tuple[list[Labelled], list[str]]:
    """The splits without the samples in data.quarantine, and notes for the user."""
    if config.quarantine is None:
        return splits, []
    quarantine = read_quarantine(config.quarantine)
    return [quarantine.without(split) for split in splits], quarantine.notes()


def _open_one(text: str, request: OpenRequest) -> Labelled:
    """One dataset, for the known classes. Where it numbers them, names beside it tell in which order."""
    name, path, manifest = _found(text, request.config)
    known = request.classes or []
    ordered = known_in_order(places_of(path), known) if _may_have_names(name, manifest) else known
    source = _open_found(name, path, manifest, replace(request, classes=ordered))
    if ordered != known and are_numbers(source.classes) and len(source.classes) == len(ordered):
        return replace(source, classes=ordered)
    return source


def _open_found(name: str, path: Path, manifest: Manifest | None, request: OpenRequest) -> Labelled:
    if path.is_dir() or name in (USER_CODE, HUB):
        val = _val(name, path, manifest, request)
    else:  # a file names all of the data, unless it has a validation part itself
        val_in_file = FORMATS[name].val_in_file
        val = None if val_in_file is None else val_in_file(path, request)
    return _train(name, path, manifest, request) if val is None else val


@contextmanager
def _explain_read_errors(text: str) -> Iterator[None]:
    """Turn OSErrors of all formats, such as a missing permission, into a UserError."""
    try:
        yield
    except OSError as error:
        raise UserError(
            f"the data {text!r} cannot be read",
            why=f"{error.strerror or error}" + (f": {str(error.filename)[:200]}" if error.filename else ""),
            remedy="check the path and its permissions",
        ) from error


def _refuse_unused_labels(config: DataConfig, val: Labelled | None) -> None:
    """Refuse a list of labels that no data uses, instead of ignoring it silently."""
    if config.val_labels is None or (isinstance(val, FileSource) and val.label_list == config.val_labels):
        return
    raise UserError(
        f"data.val_labels={config.val_labels} is not used",
        why="it is for a folder with validation images directly in it, and the validation data is "
        + ("a holdout of the training data" if val is None else val.description),
        remedy="leave it out, or name that folder with data.val",
    )
