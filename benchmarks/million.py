"""What a set of a million images takes in memory: as class folders and as one .rec file, opened and read for a while.

    python -m benchmarks.million PHOTOGRAPHS [--images 1000000]

PHOTOGRAPHS holds class folders. Its images become hard links in a thousand class folders; a record of the .rec file has
a small one. What Python and torch take by themselves is not counted.
"""

import argparse
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch  # noqa: F401  (its memory is not the loader's)
from tests.data.jpegs import jpeg, photograph
from tests.data.shard_files import rec_image

from phalanx.config.schema import DataConfig
from phalanx.data.augment.framing import RandomResizedCrop
from phalanx.data.pipeline import Pipeline
from phalanx.data.sources.encoded import EncodedSource, decode_pool
from phalanx.data.sources.folders import open_class_folders
from phalanx.data.sources.open_request import OpenRequest
from phalanx.data.sources.shards.recordio import open_recordio

CLASSES, BATCH, BATCHES = 1000, 64, 30
MOST_LINKS = 30_000  # ext4 allows 65,000 to a file


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("photographs", type=Path)
    parser.add_argument("--images", type=int, default=1_000_000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        _link(Path(folder), sorted(arguments.photographs.rglob("*.jpg")), arguments.images)
        _report("class folders", lambda: open_class_folders(Path(folder, "train"), channels=3, pool=decode_pool(2)))
        record = _record_file(Path(folder, "train.rec"), arguments.images)
        _report("one .rec file", lambda: open_recordio([record], OpenRequest(DataConfig(), 3, decode_pool(2))))
        index = sum(file.stat().st_size for file in Path(folder, ".phalanx").rglob("*") if file.is_file())
        print(f"its index on disk: {index / 1e6:.0f} MB")


def _report(name: str, open_: Callable[[], EncodedSource]) -> None:
    before, begin = _resident_mb(), time.perf_counter()
    source = open_()
    opened, took = _resident_mb(), time.perf_counter() - begin
    pipeline = Pipeline(source, RandomResizedCrop(224, flip=0.5), seed=0, batch=BATCH, threads=2)
    stream = pipeline.stream()
    for _ in range(BATCHES):
        next(stream)
    stream.close()
    print(
        f"{name}: {len(source):,} images opened in {took:.1f} s, {opened - before:.0f} MB; "
        f"{_resident_mb() - before:.0f} MB after {BATCHES} batches of {BATCH} at 224²",
        flush=True,
    )


def _link(folder: Path, photographs: list[Path], images: int) -> None:
    originals = []
    for number in range(-(-images // MOST_LINKS)):
        originals.append(folder / f"{number}.jpg")
        shutil.copy(photographs[number % len(photographs)], originals[-1])
    for label in range(CLASSES):
        place = folder / "train" / f"n{label:08d}"
        place.mkdir(parents=True)
        for number in range(images // CLASSES):
            os.link(originals[(label * images // CLASSES) // MOST_LINKS], place / f"{place.name}_{number:05d}.JPEG")


def _record_file(path: Path, images: int) -> Path:
    small = jpeg(photograph(32, 32, seed=0))
    with path.open("wb") as file:
        for number in range(images):
            file.write(rec_image(small, number % CLASSES, number))
    return path


def _resident_mb() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


if __name__ == "__main__":
    main()
