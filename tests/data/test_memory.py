"""Reading on and on takes no more memory than reading for a while."""

import os
from pathlib import Path

import numpy as np
import pytest

from phalanx.data.augment.framing import RandomResizedCrop
from phalanx.data.pipeline import Pipeline
from phalanx.data.sources.encoded import decode_pool
from phalanx.data.sources.folders import open_class_folders
from tests.data.jpegs import jpeg, photograph

EPOCHS = 50
WARM_UP_EPOCHS = 15
# A batch is 0.4 MB and an epoch 1.2 MB: what is kept of each by mistake would add up to far more than this.
MAX_GROWTH_BYTES = 6_000_000


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="there is no /proc here")
def test_memory_does_not_grow_over_fifty_epochs(tmp_path: Path) -> None:
    for number in range(24):
        folder = tmp_path / f"class {number % 2}"
        folder.mkdir(exist_ok=True)
        data = jpeg(photograph(150, 200, seed=number), progressive=number % 3 == 0)
        (folder / f"{number}.jpg").write_bytes(data[:-50] if number == 7 else data)
    source = open_class_folders(tmp_path, channels=3, pool=decode_pool(2))
    pipeline = Pipeline(source, RandomResizedCrop(128, flip=0.5), seed=0, batch=8, threads=2)
    stream, sizes = pipeline.stream(), []
    for batch in stream:
        if batch.last:
            sizes.append(resident_bytes())
        if len(sizes) == EPOCHS:
            break
    stream.close()
    before, after = np.median(sizes[WARM_UP_EPOCHS : WARM_UP_EPOCHS + 5]), np.median(sizes[-5:])
    assert after - before < MAX_GROWTH_BYTES, f"{before / 1e6:.1f} MB became {after / 1e6:.1f} MB"
