"""`phalanx data pack`: any data into tars, RecordIO, TFRecord, Parquet, class folders or memory-mapped pixels."""

from collections.abc import Mapping
from pathlib import Path

from rich.console import Console

from phalanx.commands.data_settings import data_config, in_bytes, print_notes
from phalanx.custom import user_code
from phalanx.data.pack.job import Order, pack
from phalanx.data.sources.formats import FORMATS, USER_CODE, recognise
from phalanx.data.sources.labelled import Labelled, Part
from phalanx.data.sources.manifest import Manifest, Options, load_manifest
from phalanx.data.sources.open import open_parts
from phalanx.errors import UserError
from phalanx.machine.cores import cores
from phalanx.observe.progress import progress
from phalanx.observe.tables import print_rows, print_text


@user_code()
def pack_data(console: Console, source: str, folder: Path, options: Options, settings: list[str], command: str) -> None:
    """Pack the chosen splits of a source, and print a summary."""
    config = data_config(source, settings)
    parts, notes = open_parts(config, threads=0)
    print_notes(console, notes)
    name, path = recognise(source, config.remote_options)
    places = (path,) if name != USER_CODE and FORMATS[name].has_path else ()
    for place in places:
        _refuse_inside(place, folder)
    decided = {name: getattr(config, name) for name in ("channels", "interpolation", "exif_orientation")}
    options = options.model_copy(update=decided)
    pack_order(console, Order(source, _chosen(parts, options, source), options, config, command, places), folder)


def pack_order(console: Console, order: Order, folder: Path) -> None:
    """Pack with a progress bar, and print a summary."""
    before = load_manifest(folder)
    with progress(console, "packed", sum(map(len, order.splits.values()))) as advance:
        manifest = pack(order, folder, threads=cores(), advance=advance)
    left_out = [left for shards in manifest.splits.values() for shard in shards for left in shard.left_out]
    for left in left_out:
        print_text(console, f"left out, not readable: {left.name}: {left.reason}")
    done = before.splits.values() if before else ()
    rows = {"before": f"{sum(map(len, done))} shards were there already"} if before else {}
    print_rows(console, rows | _rows(folder, manifest))


def _rows(folder: Path, manifest: Manifest) -> dict[str, str]:
    rows = {"folder": str(folder), "format": manifest.options.form}
    for part, shards in manifest.splits.items():
        count = f"{len(shards):,} shard{'s' * (len(shards) != 1)}"
        rows[part] = f"{manifest.num_samples(part):,} samples in {count}, {in_bytes(manifest.num_bytes(part))}"
    return {**rows, "classes": f"{len(manifest.classes):,}", "use": f"phalanx train --data {folder}"}


def _chosen(parts: Mapping[Part, Labelled], options: Options, source: str) -> dict[Part, Labelled]:
    chosen = {part: split for part, split in parts.items() if options.split in ("all", part)}
    if not chosen:
        raise UserError(
            f"{source} has no {options.split} split",
            why=f"it has {' and '.join(parts)}",
            remedy="leave --split out, or name the validation data with data.val=PATH",
        )
    return chosen


def _refuse_inside(source: Path, folder: Path) -> None:
    """Refuse a folder inside of the source, which would become part of it."""
    if source.is_dir() and folder.resolve().is_relative_to(source.resolve()):
        raise UserError(
            f"{folder} is inside of {source}",
            why="files there would become part of the source",
            remedy="choose a folder elsewhere",
        )
