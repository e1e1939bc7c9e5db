"""What is in a tar, a .rec and a raw file, read by somebody else than our readers."""

import struct
import tarfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phalanx.data.pack.endings import ending_of
from phalanx.data.pack.raw import RawShard
from phalanx.data.pack.rec import MAGIC, RecShard, framed_records
from phalanx.data.pack.wds import WdsShard
from phalanx.data.sources.raw import ENTRY, open_raw_file, trailer
from phalanx.data.sources.window import Damaged
from tests.data.samples import image_bytes, noise, smooth

JPEG, PNG = image_bytes(smooth(9, 7), "JPEG"), image_bytes(smooth(5, 4))


def test_a_tar_is_one_for_everybody(tmp_path: Path) -> None:
    shard = WdsShard(tmp_path / "train-00000")
    shard.add(7, 3, JPEG)
    shard.add(8, 12, PNG)
    (entry,) = shard.finish()
    with tarfile.open(tmp_path / "train-00000.tar") as tar:
        members = tar.getmembers()
        assert [member.name for member in members] == ["00000007.cls", "00000007.jpg", "00000008.cls", "00000008.png"]
        contents = [file.read() for member in members if (file := tar.extractfile(member))]
    assert contents == [b"3", JPEG, b"12", PNG]
    assert {(member.mtime, member.uid, member.mode) for member in members} == {(0, 0, 0o644)}
    assert entry.bytes == (tmp_path / "train-00000.tar").stat().st_size
    assert entry.bytes % tarfile.RECORDSIZE == 0


@pytest.mark.parametrize("form", ["PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF"])
def test_the_content_gives_the_ending(form: str) -> None:
    endings = {"JPEG": "jpg", "TIFF": "tif"}
    assert ending_of(image_bytes(smooth(4, 4), form)) == endings.get(form, form.lower())
    assert ending_of(b"no image") == "jpg"


def joined(stored: bytes) -> list[bytes]:
    """The samples of a .rec file, put together as the format's description says."""
    samples, pieces, at = [], list[bytes](), 0
    while at < len(stored):
        magic, packed = struct.unpack_from("<4sI", stored, at)
        assert magic == MAGIC
        kind, length = packed >> 29, packed & (2**29 - 1)
        pieces.append(stored[at + 8 : at + 8 + length])
        at += 8 + length + -length % 4
        if kind in (0, 3):
            samples.append(MAGIC.join(pieces))
            pieces = []
    assert not pieces
    return samples


def test_a_rec_file_with_its_index_and_list(tmp_path: Path) -> None:
    shard = RecShard(tmp_path / "val-00000", ["ape", "cat 2"])
    shard.add(40, 1, JPEG)
    shard.add(41, 0, PNG)
    names = [entry.name for entry in shard.finish()]
    assert names == ["val-00000.rec", "val-00000.idx", "val-00000.lst"]
    samples = joined((tmp_path / "val-00000.rec").read_bytes())
    assert [struct.unpack_from("<IfQQ", sample) for sample in samples] == [(0, 1.0, 40, 0), (0, 0.0, 41, 0)]
    assert [sample[24:] for sample in samples] == [JPEG, PNG]
    second = 8 + 24 + len(JPEG) + -len(JPEG) % 4
    assert (tmp_path / "val-00000.idx").read_text() == f"40\t0\n41\t{second}\n"
    listing = (tmp_path / "val-00000.lst").read_text()
    assert listing == "40\t1.000000\tcat 2/00000040.jpg\n41\t0.000000\tape/00000041.png\n"


@given(st.lists(st.sampled_from([MAGIC, b"ab", b"\n#\xd7", b"\xce123", b""]), max_size=12))
def test_the_magic_number_inside_of_a_sample(pieces: list[bytes]) -> None:
    sample = b"".join(pieces)
    records = framed_records(sample)
    assert joined(b"".join(records)) == [sample]
    # A reader that lost its way looks for the number at multiples of four: only at beginnings may it be found.
    stored, starts, at = b"".join(records), set(), 0
    for record in records:
        starts.add(at)
        at += len(record)
    assert {at for at in range(0, len(stored), 4) if stored[at : at + 4] == MAGIC} == starts


def write_raw(path: Path) -> bytes:
    shard = RawShard(path, 3)
    for number in range(4):
        shard.add(number, number % 2, noise(3 + number, 5, 3, seed=number))
    shard.finish()
    return path.with_name(path.name + ".raw").read_bytes()


def test_a_raw_file(tmp_path: Path) -> None:
    write_raw(tmp_path / "train-00000")
    file = open_raw_file(tmp_path / "train-00000.raw")
    assert file.entries["label"].tolist() == [0, 1, 0, 1]
    for number in range(4):
        np.testing.assert_array_equal(file.pixels(number), noise(3 + number, 5, 3, seed=number))


@pytest.fixture(scope="module")
def whole_raw(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, bytes]:
    folder = tmp_path_factory.mktemp("raw")
    return folder, write_raw(folder / "a")


@settings(deadline=None)
@given(cut=st.integers(0, 500), at=st.integers(0, 10**6), flip=st.integers(0, 255), added=st.binary(max_size=50))
def test_a_raw_file_damaged_anywhere(whole_raw: tuple[Path, bytes], cut: int, at: int, flip: int, added: bytes) -> None:
    """Its images are inside of it or it is refused, whatever happened to it; nothing huge is allocated."""
    folder, whole = whole_raw
    data = bytearray(whole[: max(0, len(whole) - cut)])
    if data:
        data[at % len(data)] ^= flip
    (folder / "b.raw").write_bytes(data + added)
    try:
        file = open_raw_file(folder / "b.raw")
    except Damaged:
        return
    assert sum(file.pixels(number).size for number in range(len(file.entries))) <= len(data)


def test_numbers_that_overflow_are_outside(tmp_path: Path) -> None:
    entries = np.array([(2**63, 2**32 - 1, 2**32 - 1, 0, 0)], dtype=ENTRY)
    (tmp_path / "a.raw").write_bytes(entries.tobytes() + trailer(entries, 2**32 - 1, 0))
    with pytest.raises(Damaged, match="image 0 of its index is outside"):
        open_raw_file(tmp_path / "a.raw")
