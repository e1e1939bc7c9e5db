"""MXNet itself reads what we pack, and we read what it packs. It needs an old numpy, so it has a Python of its own."""

import hashlib
import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

from tests.data.pack.packs import pack_folder, parts_of, write_dataset
from tests.data.samples import image_bytes, noise

MXNET = os.environ.get("PHALANX_MXNET", "")
needs_mxnet = pytest.mark.skipif(not MXNET, reason="PHALANX_MXNET does not name a Python that has MXNet")

READ = """
import hashlib, json, sys
import mxnet as mx
stem, size = sys.argv[1], int(sys.argv[2])
records = mx.recordio.MXIndexedRecordIO(stem + ".idx", stem + ".rec", "r")
samples = [mx.recordio.unpack(records.read_idx(key)) for key in records.keys]
batches = mx.io.ImageRecordIter(
    path_imgrec=stem + ".rec", path_imgidx=stem + ".idx", data_shape=(3, size, size), resize=size, batch_size=1
)
print(json.dumps({
    "samples": [[h.flag, float(h.label), h.id, hashlib.sha256(data).hexdigest()] for h, data in samples],
    "iterated": [int(batch.label[0].asscalar()) for batch in batches],
}))
"""
WRITE = """
import sys
import mxnet as mx
stem, folder = sys.argv[1], sys.argv[2]
records = mx.recordio.MXIndexedRecordIO(stem + ".idx", stem + ".rec", "w")
for i in range(4):
    header = mx.recordio.IRHeader(0, float(i % 3), i, 0)
    records.write_idx(i, mx.recordio.pack(header, open(f"{folder}/{i}", "rb").read()))
records.close()
"""


def mxnet(script: str, *words: str) -> str:
    done = subprocess.run([MXNET, "-c", script, *words], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@needs_mxnet
def test_mxnet_reads_what_we_pack(tmp_path: Path) -> None:
    source = write_dataset(tmp_path / "d")
    for file in source.glob("train/*/*.jpg"):
        if file.read_bytes().startswith(b"RIFF"):  # MXNet's decoder knows no WebP
            file.write_bytes(image_bytes(noise(50, 40, 3), "JPEG"))
    # A picture with RecordIO's own magic number inside, at a multiple of four, so that its record is cut there.
    plain = image_bytes(noise(60, 50, 3), "JPEG")
    (source / "train" / "ape" / "0.jpg").write_bytes(plain + bytes(-len(plain) % 4) + b"\x0a\x23\xd7\xce" * 2)
    pack_folder(source, tmp_path / "p", "rec")
    found = json.loads(mxnet(READ, str(tmp_path / "p" / "train-00000"), "32").splitlines()[-1])
    files = sorted((source / "train").glob("*/*.jpg"))
    sums = [hashlib.sha256(file.read_bytes()).hexdigest() for file in files]
    labels = [i // 4 for i in range(12)]
    assert found["samples"] == [[0, labels[i], i, sums[i]] for i in range(12)]
    assert found["iterated"] == labels


@needs_mxnet
def test_we_read_what_mxnet_packs(tmp_path: Path) -> None:
    contents = [image_bytes(noise(20 + i, 30, 3, seed=i), "JPEG") for i in range(4)]
    contents[2] += bytes(-len(contents[2]) % 4) + b"\x0a\x23\xd7\xce" + b"after"
    for i, data in enumerate(contents):
        (tmp_path / str(i)).write_bytes(data)
    mxnet(WRITE, str(tmp_path / "train"), str(tmp_path))
    train = parts_of(tmp_path / "train.rec")["train"]
    np.testing.assert_array_equal(train.labels, [0, 1, 2, 0])
    assert [train.encoded(i) for i in range(4)] == contents  # type: ignore[attr-defined]
    pack_folder(tmp_path / "train.rec", tmp_path / "p", "rec")
    assert (tmp_path / "p" / "train-00000.rec").read_bytes() == (tmp_path / "train.rec").read_bytes()
    assert (tmp_path / "p" / "train-00000.idx").read_bytes() == (tmp_path / "train.idx").read_bytes()
