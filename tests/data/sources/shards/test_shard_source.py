"""Samples of many files, read by many threads, and files that change under way."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from phalanx.data.decode.images import BadImage
from phalanx.data.sources.shards import shard_source
from phalanx.data.sources.shards.recordio import open_recordio
from phalanx.data.sources.shards.shard_source import ShardSource
from tests.data.samples import FixedViews
from tests.data.shard_files import pictures, rec_image, wanted, write_rec

SHARDS, IN_EACH, MAX_OPEN = 40, 3, 4


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ShardSource:
    monkeypatch.setattr(shard_source, "MAX_OPEN", MAX_OPEN)
    paths = [tmp_path / f"{shard:02d}.rec" for shard in range(SHARDS)]
    for shard, path in enumerate(paths):
        path.write_bytes(b"".join(rec_image(content(shard * IN_EACH + i), i) for i in range(IN_EACH)))
    return open_recordio(paths, wanted())


def content(index: int) -> bytes:
    return str(index).encode() * 5000


def num_open_below(folder: Path) -> int:
    """How many descriptors of this process are of files in a folder."""
    count = 0
    for link in Path("/proc/self/fd").iterdir():
        try:
            count += link.readlink().is_relative_to(folder)
        except OSError:  # the one that lists the folder
            continue
    return count


def test_more_files_than_may_be_open(source: ShardSource, tmp_path: Path) -> None:
    order = np.random.default_rng(0).permutation(np.repeat(np.arange(len(source)), 10)).tolist()
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(source.encoded, order))
    assert results == [content(index) for index in order]
    assert 0 < num_open_below(tmp_path) <= MAX_OPEN
    del source.files
    assert num_open_below(tmp_path) == 0


def test_a_part_of_it(source: ShardSource) -> None:
    part = source.subset(np.array([7, 5]))
    assert [part.encoded(i) for i in range(2)] == [content(7), content(5)]
    assert part.name(1) == source.name(5)


def test_files_that_change(tmp_path: Path) -> None:
    samples = pictures(4, classes=2)
    path = write_rec(tmp_path / "a.rec", samples)
    source = open_recordio([path], wanted())
    path.write_bytes(path.read_bytes() + bytes(4))
    with pytest.raises(BadImage, match="has changed since it was indexed"):
        source.encoded(0)
    read = source.read(np.array([1]), FixedViews(8), 0, replace_bad=False)
    assert "has changed" in read.bad[0][1]
    path.unlink()
    read = source.read(np.array([1]), FixedViews(8), 0, replace_bad=False)
    assert "No such file" in read.bad[0][1]


def test_a_file_that_is_cut_off_while_it_is_open(tmp_path: Path) -> None:
    path = write_rec(tmp_path / "a.rec", pictures(4, classes=2))
    source = open_recordio([path], wanted())
    assert source.encoded(3) == pictures(4)[3][0]
    os.truncate(path, int(source.offsets[3]) + 10)
    with pytest.raises(BadImage, match="ends before offset"):
        source.encoded(3)
    assert source.encoded(2) == pictures(4)[2][0]


def test_a_record_that_is_damaged_after_indexing(tmp_path: Path) -> None:
    path = write_rec(tmp_path / "a.rec", pictures(2, classes=2))
    source = open_recordio([path], wanted())
    status = path.stat()
    with path.open("r+b") as file:
        file.seek(int(source.offsets[1]))
        file.write(b"oops")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    with pytest.raises(BadImage, match="no magic number"):
        source.encoded(1)
    assert source.encoded(0) == pictures(2)[0][0]
