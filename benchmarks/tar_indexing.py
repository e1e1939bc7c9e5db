"""How fast a tar of small images is indexed, compared with Python's tarfile and WebDataset's reader going through it.

    python -m benchmarks.tar_indexing [--bytes 1000] [--samples 20000] [--rounds 7]

The tar is made for the run, and is in the page cache: this is the speed of the code and not of a disk. Each round
measures all readers in turn; the best of each counts, in MB of the tar per second of one core. tarfile only finds the
members; WebDataset's reader also reads them and groups them to samples; ours checks headers, groups and reads labels.
"""

import argparse
import io
import shutil
import tarfile
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from phalanx.config.schema import DataConfig
from phalanx.data.sources.open_request import OpenRequest
from phalanx.data.sources.shards.webdataset import open_webdataset

FORMS = {"ustar": tarfile.USTAR_FORMAT, "gnu": tarfile.GNU_FORMAT, "pax": tarfile.PAX_FORMAT}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bytes", type=int, default=1000, help="of an image")
    parser.add_argument("--samples", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--form", choices=FORMS, default="ustar", help="pax: with a pax header for each member")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = _written(Path(folder) / "small.tar", arguments.samples, arguments.bytes, arguments.form)
        size_mb = path.stat().st_size / 1e6
        best = dict.fromkeys(READERS, float("inf"))
        for _ in range(arguments.rounds):
            for name, read in READERS.items():
                best[name] = min(best[name], _seconds(read, path, arguments.samples))
        print(f"{arguments.samples:,} images of {arguments.bytes:,} bytes, {size_mb:.0f} MB")
        for name, seconds in best.items():
            print(f"{name}: {size_mb / seconds:,.0f} MB/s, {seconds / best['phalanx']:.1f} times the time of phalanx")


def _written(path: Path, samples: int, image_bytes: int, form: str) -> Path:
    random = np.random.default_rng(0)
    with tarfile.open(path, "w", format=FORMS[form]) as tar:
        for number in range(samples):
            image = random.bytes(image_bytes)
            for name, data in ((f"{number:08d}.cls", str(number % 10).encode()), (f"{number:08d}.jpg", image)):
                info = tarfile.TarInfo(name)
                info.size, info.mtime = len(data), 1.5 if form == "pax" else 1  # pax is needed for such a time
                tar.addfile(info, io.BytesIO(data))
    return path


def _phalanx(path: Path) -> int:
    shutil.rmtree(path.parent / ".phalanx", ignore_errors=True)
    return len(open_webdataset([path], OpenRequest(DataConfig(), None, None)))


def _tarfile(path: Path) -> int:
    with tarfile.open(path) as tar:
        return len(tar.getmembers()) // 2


def _webdataset(path: Path) -> int:
    import webdataset

    return sum(1 for _ in webdataset.WebDataset(str(path), shardshuffle=False))


READERS: dict[str, Callable[[Path], int]] = {"phalanx": _phalanx, "tarfile": _tarfile, "webdataset": _webdataset}


def _seconds(read: Callable[[Path], int], path: Path, samples: int) -> float:
    started = time.process_time()
    found = read(path)
    taken = time.process_time() - started
    if found != samples:
        raise SystemExit(f"{found:,} of {samples:,} samples were found")
    return taken


if __name__ == "__main__":
    main()
