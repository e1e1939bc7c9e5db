"""Images of a Parquet file in random order, by row groups or from a copy: `python benchmarks/parquet.py FOLDER`.

FOLDER has JPEG files, which are repeated up to 250 MB, in row groups of 100.
"""

import functools
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from phalanx.config.schema import DataConfig
from phalanx.data.sources.encoded import EncodedSource
from phalanx.data.sources.open import open_parts
from phalanx.data.sources.shards.tables import readable_tables

TOTAL = 250_000_000
GROUP = 100


def main(folder: Path) -> None:
    images = [path.read_bytes() for path in sorted(folder.rglob("*.jpg"))]
    images *= max(1, TOTAL // sum(map(len, images)))
    with tempfile.TemporaryDirectory() as place:
        os.environ["XDG_CACHE_HOME"] = place
        path = Path(place) / "images.parquet"
        pq.write_table(pa.table({"image": images, "label": [i % 10 for i in range(len(images))]}), path, GROUP)
        order = np.random.default_rng(0).permutation(len(images))
        print(f"{len(images):,} images, {path.stat().st_size / 1e6:.0f} MB")
        print(f"by row groups, four kept: {by_row_groups(path, order[:300]):,.0f} images/s")
        start = time.perf_counter()
        readable_tables([path], ["image", "label"])
        print(f"copy, once: {path.stat().st_size / 1e6 / (time.perf_counter() - start):,.0f} MB/s")
        source: Any = open_parts(DataConfig(source=str(path)), threads=0)[0]["train"]
        assert isinstance(source, EncodedSource)
        start = time.perf_counter()
        for index in order.tolist():
            source.encoded(index)
        print(f"from the copy: {len(order) / (time.perf_counter() - start):,.0f} images/s")


def by_row_groups(path: Path, order: Any) -> float:
    file = pq.ParquetFile(path, memory_map=True)

    @functools.lru_cache(4)
    def group(number: int) -> Any:
        return file.read_row_group(number, columns=["image"]).column(0).combine_chunks()

    start = time.perf_counter()
    for index in order.tolist():
        group(index // GROUP)[index % GROUP].as_py()
    return len(order) / (time.perf_counter() - start)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
