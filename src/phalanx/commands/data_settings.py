"""Shared by the `phalanx data` commands: settings, notes, output files."""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from rich.console import Console

from phalanx.atomic import write_atomically
from phalanx.config.resolve import Layer, flatten, nest, parse_override, resolve
from phalanx.config.schema import DataConfig
from phalanx.errors import UserError
from phalanx.observe.tables import print_text


def data_config(source: str, settings: Sequence[str]) -> DataConfig:
    """The data settings for a source, with KEY=VALUE overrides. Other settings than those of data are refused."""
    overrides = [parse_override(setting) for setting in settings]
    refuse_other_settings(overrides)
    return resolve([Layer(source, nest("data.source", source)), *overrides]).config.data


def refuse_other_settings(layers: Iterable[Layer]) -> None:
    """Refuse settings that do not begin with data."""
    for layer in layers:
        strange = [key for key in flatten(layer.values) if not key.startswith("data.")]
        if strange:
            raise UserError(
                f"{strange[0]} has no effect here",
                why="this command only reads data; its settings begin with data.",
                remedy="leave it out, or use a setting such as data.val=PATH",
            )


def print_notes(console: Console, notes: Iterable[str]) -> None:
    """Print what the user should know about the data, a line each."""
    for note in notes:
        print_text(console, f"note: {note}")


def write_out(path: Path, data: bytes) -> None:
    """Write the file that `--out` names, atomically."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with write_atomically(path) as file:
            file.write(data)
    except OSError as error:
        raise UserError(
            f"{path} cannot be written", why=error.strerror or str(error), remedy="choose another place with --out"
        ) from error


def in_bytes(count: float) -> str:
    """`1.3 GB`, in decimal units."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:,.0f} {unit}" if unit == "bytes" else f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"


def portable(name: str) -> str:
    """A sample's name that is valid from any folder: absolute if it is that of a file, or of one in an archive."""
    if os.sep not in name or "://" in name:
        return name
    folders = Path(name).parents
    is_path = folders[0].is_dir() or any(folder.is_file() for folder in folders)
    return str(Path(name).absolute()) if is_path else name
