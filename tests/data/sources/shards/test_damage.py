"""Whatever happens to a file, readers say what is wrong with it: no crash, no hang, no huge allocation."""

import tempfile
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from phalanx.data.sources.open_request import OpenRequest
from phalanx.data.sources.shards.recordio import open_recordio
from phalanx.data.sources.shards.shard_source import ShardSource
from phalanx.data.sources.shards.tfrecord import open_tfrecord
from phalanx.data.sources.shards.webdataset import open_webdataset
from phalanx.errors import UserError
from tests.data.samples import FixedViews, assert_helpful
from tests.data.shard_files import MAGIC, Sample, pictures, wanted, write_rec, write_tfrecord, write_wds

Open = Callable[[list[Path], OpenRequest], ShardSource]
Write = Callable[[Path, list[Sample]], Path]
FORMATS: dict[str, tuple[Write, Open]] = {
    "rec": (write_rec, open_recordio),
    "tfrecord": (write_tfrecord, open_tfrecord),
    "tar": (write_wds, open_webdataset),
}
MAX_BYTES = 16 << 20


def samples() -> list[Sample]:
    """Four samples; one image contains RecordIO's magic number."""
    made = pictures(4)
    made[2] = (made[2][0] + bytes(-len(made[2][0]) % 4) + MAGIC + b"tail", made[2][1])
    return made


def written(name: str, count: int = 4) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        return FORMATS[name][0](Path(folder) / "a", samples()[:count]).read_bytes()


@pytest.fixture(scope="module", params=FORMATS)
def whole(request: pytest.FixtureRequest) -> tuple[str, bytes]:
    return request.param, written(request.param)


def examine(name: str, data: bytes, salvage: bool) -> str | None:
    """Opens a file with this content and reads all of it; the error, if it is refused."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"a.{name}"
        path.write_bytes(data)
        tracemalloc.start()
        try:
            source = FORMATS[name][1]([path], wanted(salvage=salvage))
            read = source.read(np.arange(len(source)), FixedViews(8), 0, replace_bad=False)
            assert len(read.images) + len(read.bad) == len(source)
            for index in range(len(source)):
                assert str(path) in source.name(index)
        except UserError as error:
            assert_helpful(error, str(path))
            return str(error)
        finally:
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            assert peak < MAX_BYTES
    return None


def test_whole_files_are_read(whole: tuple[str, bytes]) -> None:
    assert examine(*whole, salvage=False) is None


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_damaged_files(whole: tuple[str, bytes], data: st.DataObject) -> None:
    name, content = whole
    damaged = bytearray(content[: data.draw(st.integers(0, len(content)) | st.just(len(content)))])
    for _ in range(data.draw(st.integers(0, 3)) if damaged else 0):
        place = data.draw(st.integers(0, len(damaged) - 1))
        damaged[place] = data.draw(st.sampled_from([damaged[place] ^ 1, damaged[place] ^ 0x80, 0, 0x7F, 0xFF]))
    examine(name, bytes(damaged) + data.draw(st.binary(max_size=600)), data.draw(st.booleans()))


@settings(max_examples=25, deadline=None)
@given(name=st.sampled_from(sorted(FORMATS)), data=st.binary(max_size=2000))
def test_random_bytes(name: str, data: bytes) -> None:
    assert examine(name, data, salvage=False) is not None


@pytest.mark.parametrize("name", FORMATS)
def test_truncations_are_noticed(name: str) -> None:
    content = written(name).rstrip(b"\0")
    ends = {len(written(name, count)) for count in (1, 2, 3)} if name != "tar" else set()  # where nothing can tell
    lengths = {*np.linspace(1, len(content) - 1, 40).astype(int).tolist(), *(end + 1 for end in ends)} - ends
    for length in lengths:
        error = examine(name, content[:length], salvage=False)
        assert error is not None, length
        assert "offset" in error
