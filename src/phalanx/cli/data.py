"""The `phalanx data` commands: inspect, check, pack and fetch data. Heavy imports happen when one runs."""

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from phalanx.errors import UserError, nearest

FORMS = ("wds", "rec", "raw", "tfrecord", "parquet", "folder")
SPLITS = ("all", "train", "val")

app = typer.Typer(name="data", help="Inspect, check, pack and fetch data.", no_args_is_help=True)

Data = Annotated[str, typer.Argument(metavar="PATH", help="digits, synthetic, PATH, or FORMAT:PATH")]
Settings = Annotated[
    list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="settings of the data, such as data.val=PATH")
]
FORMS_HELP = "wds (tars), rec (RecordIO), raw (memory-mapped pixels), tfrecord, parquet (Hugging Face), folder"
Form = Annotated[str, typer.Option("--format", help=FORMS_HELP)]
Resize = Annotated[int | None, typer.Option(min=1, help="make the shorter side this many pixels where it is longer")]
Quality = Annotated[int | None, typer.Option(min=1, max=100, help="JPEG quality of what is encoded again")]
Shards = Annotated[int | None, typer.Option(min=1, help="number of shards; default: by size")]


@app.command()
def info(
    path: Data,
    settings: Settings = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="PNG", help="draw a contact sheet: pictures of each class")
    ] = None,
    duplicates: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="compare all samples, and list training copies of validation images"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="as JSON on standard output")] = False,
) -> None:
    """Show what a run would be trained on: splits, classes, image sizes, copies."""
    from phalanx.commands.data_info import show_info

    show_info(Console(), path, settings or [], out, duplicates=duplicates, as_json=as_json)


@app.command()
def verify(
    path: Data,
    settings: Settings = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="list of broken samples, for data.quarantine")] = None,
) -> None:
    """Decode every sample and check every checksum; exit code 1 if something is broken."""
    from phalanx.commands.data_verify import verify_data

    raise typer.Exit(verify_data(Console(), path, settings or [], out))


@app.command()
def pack(
    source: Annotated[str, typer.Argument(metavar="SRC", help="data to pack, of any format")],
    folder: Annotated[Path, typer.Argument(metavar="DST", help="a new folder")],
    settings: Settings = None,
    form: Form = "wds",
    resize: Resize = None,
    quality: Quality = None,
    shards: Shards = None,
    split: Annotated[str, typer.Option(help="train, val, or all that there is")] = "all",
) -> None:
    """Pack data into tars, RecordIO, TFRecord, Parquet, class folders or pixels; continues after an interruption."""
    _one_of("--split", split, SPLITS)
    _refuse_form(form, quality)
    from phalanx.commands.data_pack import pack_data
    from phalanx.data.sources.manifest import Options

    options = Options.model_validate(
        {"form": form, "resize": resize, "quality": quality, "shards": shards, "split": split}
    )
    pack_data(Console(), source, folder, options, settings or [], _command())


@app.command()
def imagenet(
    folder: Annotated[Path, typer.Argument(metavar="DST", help="a new folder")],
    train: Annotated[Path, typer.Option(help="ILSVRC2012_img_train.tar")],
    val: Annotated[Path, typer.Option(help="ILSVRC2012_img_val.tar")],
    devkit: Annotated[Path, typer.Option(help="ILSVRC2012_devkit_t12.tar.gz")],
    form: Form = "wds",
    resize: Resize = None,
    quality: Quality = None,
    shards: Shards = None,
) -> None:
    """Pack ImageNet straight from its official archives, without unpacking them."""
    _refuse_form(form, quality)
    for name, file in (("--train", train), ("--val", val), ("--devkit", devkit)):
        if not file.is_file():
            raise UserError(f"{name}: there is no file {file}", why="it is required", remedy="check the path")
    from phalanx.commands.data_imagenet import pack_imagenet
    from phalanx.data.sources.manifest import Options

    options = Options.model_validate({"form": form, "resize": resize, "quality": quality, "shards": shards})
    pack_imagenet(Console(), train, val, devkit, folder, options, _command())


@app.command()
def fetch(
    name: Annotated[str, typer.Argument(help="cifar10, cifar100, mnist, fashion-mnist")],
    folder: Annotated[Path, typer.Argument(metavar="DST", help="the folder for it")],
    origin: Annotated[
        str | None, typer.Option("--from", help="a local copy or another URL; default: its public site")
    ] = None,
) -> None:
    """Fetch a public dataset: checked against its published checksum; continues after an interruption."""
    from phalanx.commands.data_fetch import DATASETS, fetch_dataset

    _one_of("the dataset", name, tuple(DATASETS))
    fetch_dataset(Console(), DATASETS[name], folder, origin)


def _refuse_form(form: str, quality: int | None) -> None:
    _one_of("--format", form, FORMS)
    if form == "raw" and quality is not None:
        raise UserError(
            "--quality does not go together with --format raw",
            why="raw keeps pixels, which no quality changes",
            remedy="leave it out; --resize makes them fewer",
        )


def _one_of(what: str, given: str, known: tuple[str, ...]) -> None:
    if given not in known:
        raise UserError(
            f"{what} cannot be {given!r}", why=f"known are {', '.join(known)}", remedy=nearest(given, known)
        )


def _command() -> str:
    return shlex.join(["phalanx", *sys.argv[1:]])
