"""CRC-32C, native and by NumPy."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phalanx.data.sources import crc32c as module
from phalanx.data.sources.crc32c import by_numpy, crc32c, slow_checksums
from phalanx.native.build import find_library
from tests.data.samples import noise
from tests.data.shard_files import crc32c as slowly

# RFC 3720, appendix B.4
PUBLISHED = [
    (bytes(32), 0x8A9136AA),
    (b"\xff" * 32, 0x62A8AB43),
    (bytes(range(32)), 0x46DD794E),
    (bytes(range(31, -1, -1)), 0x113FDB5C),
]


@pytest.mark.parametrize(("data", "checksum"), PUBLISHED)
def test_published_values(data: bytes, checksum: int) -> None:
    assert crc32c(data) == by_numpy(data, 0, len(data)) == slowly(data) == checksum


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 3000), st.integers(0, 9), st.integers(0, 9))
def test_any_piece_of_any_length(size: int, before: int, after: int) -> None:
    data = noise(before + size + after, seed=size).tobytes()
    expected = slowly(data[before : before + size])
    assert crc32c(data, before, size) == by_numpy(data, before, size) == expected


def test_many_lanes() -> None:
    data = noise(1_000_003).tobytes()
    assert by_numpy(data, 1, len(data) - 1) == crc32c(data, 1)


def test_without_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    assert slow_checksums() == [] or "NumPy" in slow_checksums()[0]
    monkeypatch.setenv("PHALANX_NATIVE", "0")
    forget()
    try:
        assert crc32c(*PUBLISHED[0][:1]) == PUBLISHED[0][1]
        assert slow_checksums() == ["checksums at about 80 MB/s instead of 7 GB/s: NumPy (PHALANX_NATIVE=0)"]
    finally:
        forget()


def forget() -> None:
    """The answer does not change while a process lives, except in tests."""
    find_library.cache_clear()
    module._function.cache_clear()


@pytest.mark.parametrize(("start", "size"), [(-1, 2), (0, 11), (11, 0), (5, 6), (0, -1)])
def test_nothing_is_read_outside(start: int, size: int) -> None:
    with pytest.raises(ValueError, match="not within"):
        crc32c(bytes(10), start, size)
