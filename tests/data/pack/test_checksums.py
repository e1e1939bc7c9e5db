"""Checksums of packed files, and the place of damage in a file."""

from pathlib import Path

import pytest

from phalanx.data.pack.checksums import BLOCK_BYTES, ChecksummedFile, damage
from phalanx.data.sources.manifest import FileEntry


def written(path: Path, *pieces: bytes) -> FileEntry:
    part = ChecksummedFile(path)
    for piece in pieces:
        part.write(piece)
    return part.finish()


def test_a_file_has_its_name_only_when_it_is_finished(tmp_path: Path) -> None:
    part = ChecksummedFile(tmp_path / "a.tar")
    part.write(b"half")
    assert not (tmp_path / "a.tar").exists()
    part.finish()
    assert [file.name for file in tmp_path.iterdir()] == ["a.tar"]
    other = ChecksummedFile(tmp_path / "b.tar")
    other.write(b"half")
    other.abandon()
    assert [file.name for file in tmp_path.iterdir()] == ["a.tar"]


def test_sums_do_not_depend_on_the_pieces(tmp_path: Path) -> None:
    data = bytes(range(256)) * (3 * BLOCK_BYTES // 256 + 10)
    whole = written(tmp_path / "a", data)
    cut = [data[i : i + 700_001] for i in range(0, len(data), 700_001)]
    assert written(tmp_path / "a", *cut) == whole
    assert len(whole.blocks) == 8 * 4


@pytest.mark.parametrize("flipped", [0, BLOCK_BYTES, BLOCK_BYTES + 17, 2 * BLOCK_BYTES + 99])
def test_a_flipped_bit_has_a_place(tmp_path: Path, flipped: int) -> None:
    data = bytearray(2 * BLOCK_BYTES + 100)
    entry = written(tmp_path / "a", bytes(data))
    heard: list[int] = []
    assert damage(tmp_path / "a", entry, heard.append) == ""
    assert sum(heard) == len(data)
    data[flipped] ^= 4
    (tmp_path / "a").write_bytes(data)
    low = flipped // BLOCK_BYTES * BLOCK_BYTES
    high = min(low + BLOCK_BYTES, len(data))
    assert f"between bytes {low:,} and {high:,}" in damage(tmp_path / "a", entry, heard.append)


def test_what_is_cut_off_longer_or_gone(tmp_path: Path) -> None:
    data = bytes(BLOCK_BYTES + 10)
    entry = written(tmp_path / "a", data)
    (tmp_path / "a").write_bytes(data[:-3])
    assert damage(tmp_path / "a", entry, lambda count: None) == "it ends at byte 1,048,583 of 1,048,586"
    (tmp_path / "a").write_bytes(data + b"x")
    assert "1,048,587 bytes" in damage(tmp_path / "a", entry, lambda count: None)
    (tmp_path / "a").unlink()
    assert "No such file" in damage(tmp_path / "a", entry, lambda count: None)
