"""The contenders of Phalanx in `bench io`: the training pipeline, and its upper bound.

python -m phalanx.bench.io_phalanx pipeline|entropy JOB
"""

import json
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch

from phalanx.bench.peers import PeerJob, files_of
from phalanx.bench.turns import serve
from phalanx.config.schema import DataConfig
from phalanx.data.augment.framing import RandomResizedCrop
from phalanx.data.decode.jpeg import find_decoder
from phalanx.data.pipeline import Pipeline
from phalanx.data.sources.open import open_parts


def pipeline(job: PeerJob) -> Iterator[int]:
    """Batches as training gets them."""
    torch.set_num_threads(1)
    parts, _ = open_parts(DataConfig(source=job["source"], decode=job["decode"]), threads=job["threads"])
    source = parts["train"]
    if job["indices"] is not None:
        source = source.subset(np.array(job["indices"], dtype=np.int64))
    framing = RandomResizedCrop(job["size"], flip=0.5)
    made = Pipeline(source, framing, seed=0, batch=job["batch"], threads=job["threads"], drop_last=True)
    return (micro.count for batch in made.stream() for micro in batch.micro)


def entropy(job: PeerJob) -> Iterator[int]:
    """Entropy decoding alone, of files in memory, with the same threads: no decoder can be faster."""
    decoder = find_decoder()
    if decoder is None or decoder.library is None:
        raise SystemExit("there is no libjpeg-turbo to compare with")
    data = [Path(path).read_bytes() for path in files_of(job)[0]]
    threads = max(1, job["threads"])
    parts = [data[i : i + 8] for i in range(0, len(data), 8)]
    with ThreadPoolExecutor(threads) as pool:
        while True:
            for at in range(0, len(parts), 4 * threads):
                some = parts[at : at + 4 * threads]
                failed = sum(pool.map(decoder.undo_entropy_coding, some))
                yield sum(map(len, some)) - failed


def main() -> None:
    what, job = sys.argv[1:]
    sys.stdout = sys.stderr
    serve({"pipeline": pipeline, "entropy": entropy}[what](json.loads(job)))


if __name__ == "__main__":
    main()
