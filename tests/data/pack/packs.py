"""What tests of packing share: a small dataset of photographs and oddities, and one call that packs it."""

import hashlib
import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from phalanx.config.schema import DataConfig
from phalanx.data.pack.job import Order, pack
from phalanx.data.sources.labelled import Labelled, Part
from phalanx.data.sources.manifest import Manifest, Options
from phalanx.data.sources.open import open_parts
from tests.data.samples import image_bytes, noise, smooth

COMMAND = "phalanx data pack SRC DST"
FORMS = ["wds", "rec", "raw", "tfrecord", "folder", *(["parquet"] if importlib.util.find_spec("pyarrow") else [])]


def write_dataset(root: Path) -> Path:
    """12 training and 5 validation images in three classes: JPEG, grey, CMYK, PNG, WebP, a name that lies."""
    for part, count in (("train", 4), ("val", 2)):
        for number, name in enumerate(("ape", "cat 2", "dog")):
            folder = root / part / name
            folder.mkdir(parents=True)
            for i in range(count - (part == "val" and number == 2)):
                (folder / f"{i}.jpg").write_bytes(_odd_image(4 * number + i + (part == "val")))
    return root


def _odd_image(number: int) -> bytes:
    height, width = 40 + 3 * number, 60 - 2 * number
    pixels = smooth(height, width)
    pixels[: height // 2] ^= noise(height // 2, width, 3, seed=number) >> 3
    match number % 5:
        case 0:
            return image_bytes(pixels)
        case 1:
            return image_bytes(pixels, "JPEG", "L")
        case 2:
            return image_bytes(pixels, "JPEG", "CMYK")
        case 3:
            return image_bytes(pixels, "WEBP")
        case _:
            return image_bytes(pixels, "JPEG")


def parts_of(source: Path | str, **settings: Any) -> dict[Part, Labelled]:
    return open_parts(DataConfig(source=str(source), **settings), threads=0)[0]


def pack_folder(
    source: Path, folder: Path, form: str = "wds", *, threads: int = 2, settings: Any = None, **options: Any
) -> Manifest:
    """Pack whatever is at `source`."""
    config = DataConfig(source=str(source), **(settings or {}))
    splits = open_parts(config, threads=0)[0]
    wanted = Options.model_validate({"form": form, **options})
    chosen = {part: split for part, split in splits.items() if wanted.split in ("all", part)}
    order = Order(str(source), chosen, wanted, config, COMMAND, (source,))
    return pack(order, folder, threads=threads, advance=lambda count: None)


def shard_sums(folder: Path) -> dict[str, str]:
    """The digest of every file but the manifest, which tells where its pack came from."""
    names = sorted(file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file())
    shown = [name for name in names if name != "pack.json" and not f"/{name}".count("/.")]
    return {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in shown}


def decoded(data: bytes) -> Image.Image:
    from io import BytesIO

    image = Image.open(BytesIO(data))
    image.load()
    return image


def same_pixels(one: Image.Image, other: Image.Image) -> bool:
    return bool(np.array_equal(np.asarray(one), np.asarray(other)))
