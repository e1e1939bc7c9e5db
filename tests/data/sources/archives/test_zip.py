"""Zip files of class folders, read where they are: as their folders on disk, and as zipfile reads them."""

import io
import struct
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from phalanx.commands.data_verify import verify_data
from phalanx.config.schema import DataConfig
from phalanx.data.decode.images import BadImage
from phalanx.data.sources.archives.zip_directory import zip_members
from phalanx.data.sources.archives.zip_storage import ZipStorage
from phalanx.data.sources.formats import recognise
from phalanx.data.sources.open import Splits, open_data, open_split
from phalanx.errors import UserError
from tests.data.samples import FixedViews, assert_helpful, image_bytes, noise

Members = dict[str, bytes]


def pictures(*folders: str, count: int = 4) -> Members:
    numbers = [(folder, i) for folder in folders for i in range(count)]
    return {f"{folder}/{i}.png": image_bytes(noise(6, 8, 3, seed=n)) for n, (folder, i) in enumerate(numbers)}


def write_zip(path: Path, members: Iterable[tuple[str, bytes]], method: int = zipfile.ZIP_STORED) -> Path:
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, data in members:
            archive.writestr(name, data)
    return path


def write_folder(folder: Path, members: Members) -> Path:
    for name, data in members.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


def opened(path: Path, **settings: Any) -> Splits:
    return open_data(DataConfig.model_validate({"source": str(path), "val_share": 0.25, **settings}), threads=2)


def assert_same(one: Splits, other: Splits) -> None:
    for a, b in ((one.train, other.train), (one.val, other.val)):
        assert (a.classes, a.labels.tolist()) == (b.classes, b.labels.tolist())
        first, second = (each.read(np.arange(len(a)), FixedViews(8), 0, replace_bad=False) for each in (a, b))
        np.testing.assert_array_equal(first.images, second.images)
        assert not first.bad


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
@pytest.mark.parametrize("folders", [("ape", "cat"), ("train/ape", "train/cat", "val/ape", "val/cat")])
@pytest.mark.parametrize("top", ["", "flowers/", "a/b/"])
def test_the_same_as_its_folders(tmp_path: Path, method: int, folders: tuple[str, ...], top: str) -> None:
    members = pictures(*(top + folder for folder in folders))
    extra = {f"__MACOSX/{name}": b"\0\5\26\7" for name in members} | {f"{top}readme.txt": b"words"}
    path = write_zip(tmp_path / "data.zip", sorted({**members, **extra}.items(), reverse=True), method)
    folder = write_folder(tmp_path / "folder", members)
    found = opened(path)
    assert_same(found, opened(folder / top))
    assert recognise(str(path))[0] == "zip"
    assert found.train.name(0) == f"{path}/{top}{folders[0]}/{found.train.name(0)[-5:]}"


def test_evaluation_takes_the_validation_part(tmp_path: Path) -> None:
    path = write_zip(tmp_path / "data.zip", pictures("train/ape", "train/cat", "val/ape", "val/cat").items())
    source = open_split(str(path), DataConfig(), ["ape", "cat"], threads=0)
    assert all("/val/" in source.name(index) for index in range(len(source)))


def test_a_zip_for_each_split(tmp_path: Path) -> None:
    write_zip(tmp_path / "Train.zip", pictures("Train/ape", "Train/cat").items())
    write_zip(tmp_path / "Trainval.zip", pictures("ape", "cat").items())
    write_zip(tmp_path / "Test.zip", pictures("images").items())  # a competition's, without classes
    splits = opened(tmp_path / "Train.zip")
    assert (len(splits.train), len(splits.val)) == (6, 2)  # held out
    write_zip(tmp_path / "Tval.zip", pictures("ape", "cat").items())
    (tmp_path / "Train.zip").rename(tmp_path / "train.zip")
    write_zip(tmp_path / "val.zip", pictures("ape", "cat", count=3).items())
    splits = opened(tmp_path / "train.zip")
    assert (len(splits.train), len(splits.val)) == (8, 6)
    assert any("found beside train.zip" in note for note in splits.notes)


class Unseekable(io.RawIOBase):
    """A pipe: sizes and checksums then follow each member's data."""

    def __init__(self) -> None:
        self.data = bytearray()

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self.data += bytes(data)
        return len(data)


def streamed(path: Path, members: Members) -> None:
    out = Unseekable()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    path.write_bytes(out.data)


def with_long_extras(path: Path, members: Members) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            info = zipfile.ZipInfo(name)
            info.extra = struct.pack("<HH", 0xCAFE, 300) + bytes(300)
            archive.writestr(info, data)


def after_a_program(path: Path, members: Members) -> None:
    """A self-extracting archive, with a comment."""
    write_zip(path, members.items())
    data = b"#!/bin/sh\n" + bytes(1000) + path.read_bytes()
    path.write_bytes(data)
    with zipfile.ZipFile(path, "a") as archive:
        archive.comment = b"a comment"


def zip64(path: Path, members: Members) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            with archive.open(name, "w", force_zip64=True) as file:
                file.write(data)


def zip64_directory(path: Path, members: Members, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(zipfile, "ZIP64_LIMIT", 400)
    patch.setattr(zipfile, "ZIP_FILECOUNT_LIMIT", 3)
    write_zip(path, members.items())
    patch.undo()
    assert b"PK\6\6" in path.read_bytes()


@pytest.mark.parametrize("write", [streamed, with_long_extras, after_a_program, zip64, zip64_directory])
def test_kinds_of_zip_files(tmp_path: Path, write: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    members, path = pictures("ape", "cat", "dog"), tmp_path / "data.zip"
    write(path, members, *([monkeypatch] if write is zip64_directory else []))
    storage = ZipStorage(path)
    with zipfile.ZipFile(path) as archive:
        assert sorted(archive.namelist()) == sorted(members)
        for name in members:
            assert storage.read(f"{path}/{name}".encode()) == archive.read(name) == members[name]
    with path.open("rb") as file:
        found = {each.name: (each.size, each.crc) for each in zip_members(file.fileno(), path.stat().st_size)}
    with zipfile.ZipFile(path) as archive:
        assert found == {info.filename: (info.file_size, info.CRC) for info in archive.infolist()}


@pytest.mark.parametrize(
    ("stored", "flag", "name"),
    [
        ("Äpfel".encode(), True, "Äpfel"),
        ("Äpfel".encode(), False, "Äpfel"),  # macOS sets no flag
        ("Äpfel".encode("cp437"), False, "Äpfel"),
        ("猫".encode(), True, "猫"),
    ],
)
def test_names_in_utf_8_and_cp437(tmp_path: Path, stored: bytes, flag: bool, name: str) -> None:
    place = b"X" * len(stored)
    path = write_zip(tmp_path / "data.zip", pictures(place.decode(), "cat").items())
    data = bytearray(path.read_bytes().replace(place + b"/", stored + b"/"))
    at = data.find(b"PK\1\2")
    while at >= 0 and flag:
        data[at + 9] |= 0x08  # bit 11
        at = data.find(b"PK\1\2", at + 4)
    path.write_bytes(data)
    assert sorted(opened(path).train.classes) == sorted([name, "cat"])
    assert not opened(path).train.read(np.arange(2), FixedViews(8), 0, replace_bad=False).bad


def test_backslashes_of_windows(tmp_path: Path) -> None:
    path = write_zip(tmp_path / "data.zip", pictures("a#ape", "a#cat").items())
    data = bytearray(path.read_bytes().replace(b"a#ape/", b"a\\ape\\").replace(b"a#cat/", b"a\\cat\\"))
    at = data.find(b"PK\1\2")
    while at >= 0:
        data[at + 5] = 0  # made by DOS
        at = data.find(b"PK\1\2", at + 4)
    path.write_bytes(data)
    assert opened(path).train.classes == ["ape", "cat"]


def patched(path: Path, offset: int, value: bytes) -> None:
    """Change a field of every entry of the directory."""
    data = bytearray(path.read_bytes())
    at = data.find(b"PK\1\2")
    while at >= 0:
        data[at + offset : at + offset + len(value)] = value
        at = data.find(b"PK\1\2", at + 4)
    path.write_bytes(data)


def test_encrypted_members_are_refused(tmp_path: Path) -> None:
    path = write_zip(tmp_path / "data.zip", pictures("ape", "cat").items())
    patched(path, 8, b"\1\0")
    with pytest.raises(UserError) as error:
        opened(path)
    assert_helpful(error.value, "data.zip", "encrypted", "8 of its 8", "unpack")


def test_other_compressions_are_bad_images(tmp_path: Path) -> None:
    path = write_zip(tmp_path / "data.zip", pictures("ape", "cat").items(), zipfile.ZIP_BZIP2)
    found = opened(path).val.read(np.arange(2), FixedViews(8), 0, replace_bad=False)
    assert [reason for _, reason in found.bad] == ["it is compressed by bzip2, not by deflate"] * 2


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_a_damaged_member_is_a_bad_image(tmp_path: Path, method: int) -> None:
    members = pictures("ape", "cat")
    path = write_zip(tmp_path / "data.zip", members.items(), method)
    with zipfile.ZipFile(path) as archive:
        info = archive.getinfo("cat/2.png")
    data = bytearray(path.read_bytes())
    data[info.header_offset + 30 + len("cat/2.png") + 60] ^= 0xFF
    path.write_bytes(data)
    out = tmp_path / "bad.tsv"
    console = Console(file=io.StringIO())
    assert verify_data(console, str(path), [], out) == 1
    assert out.read_text().startswith(f"{path}/cat/2.png\t")
    kept = opened(path, quarantine=str(out))
    assert len(kept.train) + len(kept.val) == 7


def test_bombs_stop_at_their_announced_size(tmp_path: Path) -> None:
    bomb = bytes(50_000_000)
    path = write_zip(tmp_path / "data.zip", [("ape/0.png", bomb), ("cat/0.png", b"x")], zipfile.ZIP_DEFLATED)
    patched(path, 24, struct.pack("<L", 1000))
    with pytest.raises(BadImage, match="more than the 1,000 bytes"):
        ZipStorage(path).read(f"{path}/ape/0.png".encode())
    patched(path, 24, struct.pack("<L", 0xF0000000))
    with pytest.raises(BadImage, match="which no image has"):
        ZipStorage(path).read(f"{path}/ape/0.png".encode())


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda data: data[: len(data) // 2], ("directory at its end is missing", "offset")),
        (lambda data: data[:-5], ("directory at its end is missing",)),
        (lambda data: data.replace(b"PK\1\2", b"PK\1\3"), ("entry 0 of its directory",)),
        (lambda data: data[:-18] + struct.pack("<4HLLH", 0, 0, 99, 99, 9, 9, 0), ("does not fit",)),
        (lambda data: b"", ("directory at its end is missing",)),
    ],
)
def test_a_damaged_zip_is_located(tmp_path: Path, change: Callable[[bytes], bytes], words: tuple[str, ...]) -> None:
    path = write_zip(tmp_path / "data.zip", pictures("ape", "cat").items())
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(UserError) as error:
        opened(path)
    assert_helpful(error.value, "data.zip", "damaged at offset", *words)


def test_fuzzed_directories_never_crash(tmp_path: Path) -> None:
    path = write_zip(tmp_path / "data.zip", pictures("ape", "cat").items(), zipfile.ZIP_DEFLATED)
    whole, rng = path.read_bytes(), np.random.default_rng(0)
    start = whole.find(b"PK\1\2")
    for _ in range(300):
        data = bytearray(whole)
        for place in rng.integers(start, len(data), 3):
            data[place] = rng.integers(256)
        path.write_bytes(data)
        try:
            storage = ZipStorage(path)
            for name in pictures("ape", "cat"):
                storage.read(f"{path}/{name}".encode())
        except (UserError, BadImage, OSError):
            continue


def test_a_file_that_changes_gives_bad_images(tmp_path: Path) -> None:
    path = write_zip(tmp_path / "data.zip", pictures("ape", "cat").items())
    source = open_split(str(path), DataConfig(), ["ape", "cat"], threads=0)
    write_zip(path, pictures("ape", "cat", "dog").items())
    assert len(source.read(np.arange(3), FixedViews(8), 0, replace_bad=False).bad) == 3


def test_nothing_in_it(tmp_path: Path) -> None:
    path = write_zip(tmp_path / "data.zip", [("readme.txt", b"words"), ("images/1.csv", b"1")])
    with pytest.raises(UserError) as error:
        opened(path)
    assert_helpful(error.value, "data.zip")
