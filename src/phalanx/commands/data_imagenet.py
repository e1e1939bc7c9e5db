"""`phalanx data imagenet`: shards straight from ImageNet's official archives."""

from pathlib import Path

from rich.console import Console

from phalanx.commands.data_pack import pack_order
from phalanx.config.schema import DataConfig
from phalanx.data.pack.imagenet import open_imagenet
from phalanx.data.pack.job import Order
from phalanx.data.sources.manifest import Options
from phalanx.observe.progress import megabytes


def pack_imagenet(
    console: Console, train: Path, val: Path, devkit: Path, folder: Path, options: Options, command: str
) -> None:
    """Find the images in the archives, then pack them. The same command resumes an interrupted one."""
    with megabytes(console, "finding images", train.stat().st_size + val.stat().st_size) as advance:
        splits = open_imagenet(train, val, devkit, advance)
    source = f"ImageNet: {train}, {val}"
    pack_order(console, Order(source, splits, options, DataConfig(), command, (train, val)), folder)
