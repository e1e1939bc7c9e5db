"""Gzipped shards are unpacked once; other compressions are refused."""

import bz2
import gzip
import lzma
from pathlib import Path

import pytest

from phalanx.data.sources.shards import unpack
from phalanx.data.sources.shards.unpack import readable_shards, start_of
from phalanx.errors import UserError
from tests.data.samples import assert_helpful, noise


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "phalanx" / "unpacked"


def test_unpacked_once_and_again_when_it_changed(tmp_path: Path, cache: Path) -> None:
    content = noise(3 << 20).tobytes()
    path, plain = tmp_path / "a.tar.gz", tmp_path / "b.tar"
    path.write_bytes(gzip.compress(content[: 2 << 20], 1) + gzip.compress(content[2 << 20 :], 1))
    plain.write_bytes(b"plain")
    first, untouched = readable_shards([path, plain])
    assert first.data.read_bytes() == content
    assert (first.path, untouched.path, untouched.data) == (path, plain, plain)
    written = first.data.stat().st_mtime_ns
    assert readable_shards([path])[0].data.stat().st_mtime_ns == written
    path.write_bytes(gzip.compress(b"other"))
    assert readable_shards([path])[0].data.read_bytes() == b"other"
    assert len([entry for entry in cache.iterdir() if entry.name != "lock"]) == 1, "the old one is gone"


def test_damage_leaves_nothing_behind(tmp_path: Path, cache: Path) -> None:
    path = tmp_path / "a.tar.gz"
    packed = gzip.compress(noise(200_000).tobytes())
    flipped = bytearray(packed)
    flipped[100_000] ^= 1
    for data in (packed[:100_000], bytes(flipped), packed + b"and more"):
        path.write_bytes(data)
        with pytest.raises(UserError) as caught:
            readable_shards([path])
        assert_helpful(caught.value, "a.tar.gz is damaged near offset", "does not unpack")
        assert [entry.name for entry in cache.iterdir()] == ["lock"]


@pytest.mark.parametrize(
    ("data", "name"),
    [(bz2.compress(b"x"), "bzip2"), (lzma.compress(b"x"), "xz"), (b"\x28\xb5\x2f\xfd....", "zstd")],
)
def test_other_compressions(tmp_path: Path, data: bytes, name: str) -> None:
    (tmp_path / "a.tar").write_bytes(data)
    with pytest.raises(UserError) as caught:
        readable_shards([tmp_path / "a.tar"])
    assert_helpful(caught.value, f"compressed by {name}", "unpack it")


def test_no_space_and_no_place(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.tar.gz"
    path.write_bytes(gzip.compress(b"x"))
    monkeypatch.setattr(unpack, "RESERVE", 1 << 60)
    with pytest.raises(UserError) as caught:
        readable_shards([path])
    assert_helpful(caught.value, "no space to unpack", str(cache), "XDG_CACHE_HOME")
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(UserError) as caught:
        readable_shards([path])
    assert_helpful(caught.value, "no folder for it", "XDG_CACHE_HOME")


def test_the_start_of_a_file(tmp_path: Path) -> None:
    content = noise(5000).tobytes()
    for data in (content, gzip.compress(content)):
        (tmp_path / "a").write_bytes(data)
        assert start_of(tmp_path / "a", 512) == content[:512]
    (tmp_path / "a").write_bytes(b"\x1f\x8b and then nonsense")
    assert start_of(tmp_path / "a", 512) == b""
