"""How fast indexes are made: the images of a folder as .rec, TFRecord and tar, indexed and read through the index.

    python -m benchmarks.indexing FOLDER_OF_CLASS_FOLDERS [--megabytes 300]

Files are in the page cache, so this is the speed of the code and not of a disk; it is per second of one core, so that
other work on the machine does not count. The best of three.
"""

import argparse
import itertools
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from crc32c import crc32c
from tests.data.shard_files import Sample, example, tf_record, write_rec, write_wds

from phalanx.config.schema import DataConfig
from phalanx.data.sources.folders import open_class_folders
from phalanx.data.sources.open_request import OpenRequest
from phalanx.data.sources.shards.recordio import open_recordio
from phalanx.data.sources.shards.shard_source import ShardSource
from phalanx.data.sources.shards.tfrecord import open_tfrecord
from phalanx.data.sources.shards.webdataset import open_webdataset


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--megabytes", type=int, default=300)
    arguments = parser.parse_args()
    samples = _samples(arguments.folder, arguments.megabytes * 1_000_000)
    with tempfile.TemporaryDirectory() as folder:
        for name, (write, read) in FORMATS.items():
            path = write(Path(folder) / f"data.{name}", samples)
            size_mb = path.stat().st_size / 1e6
            index_s = min(_seconds(lambda: _indexed_anew(path, read)) for _ in range(3))  # noqa: B023
            source = read([path], _want())
            open_s = min(_seconds(lambda: read([path], _want())) for _ in range(3))  # noqa: B023
            read_s = min(_seconds(lambda: list(map(source.encoded, range(len(source))))) for _ in range(3))  # noqa: B023
            print(
                f"{name}: {len(source):,} samples, {size_mb:.0f} MB; index {size_mb / index_s:,.0f} MB/s, "
                f"opened again in {1e3 * open_s:.1f} ms, read {1e6 * read_s / len(source):.1f} µs a sample"
            )


def _write_tfrecord(path: Path, samples: list[Sample]) -> Path:
    with path.open("wb") as file:
        for image, label in samples:
            file.write(tf_record(example({"image": image, "label": [label]}), crc32c))
    return path


def _samples(folder: Path, enough: int) -> list[Sample]:
    """The folder's images, again and again until there are enough bytes."""
    source = open_class_folders(folder, channels=None, pool=None)
    samples, total = [], 0
    for index in itertools.cycle(range(len(source))):
        samples.append((source.encoded(index), int(source.labels[index])))
        total += len(samples[-1][0])
        if total >= enough:
            return samples
    return samples


def _want() -> OpenRequest:
    return OpenRequest(DataConfig(), None, None)


def _indexed_anew(path: Path, read: Callable[[list[Path], OpenRequest], ShardSource]) -> None:
    shutil.rmtree(path.parent / ".phalanx", ignore_errors=True)
    read([path], _want())


def _seconds(action: Callable[[], object]) -> float:
    started = time.process_time()
    action()
    return time.process_time() - started


FORMATS: dict[str, tuple[Callable[[Path, list[Sample]], Path], Callable[[list[Path], OpenRequest], ShardSource]]] = {
    "rec": (write_rec, open_recordio),
    "tfrecord": (_write_tfrecord, open_tfrecord),
    "tar": (write_wds, open_webdataset),
}


if __name__ == "__main__":
    main()
