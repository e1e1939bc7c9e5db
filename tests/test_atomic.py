"""Atomic writing: the old file or the new one, and nothing else left in the folder."""

import multiprocessing
import os
import resource
from pathlib import Path

import pytest

from phalanx.atomic import AtomicFile, write_atomically, write_text_atomically


def names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


def write_and_fail(path: Path, data: bytes, error: BaseException) -> None:
    with write_atomically(path) as file:
        file.write(data)
        raise error


def test_a_file_replaces_the_one_before_at_the_end_of_the_block(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_text_atomically(path, "old ü")
    with write_atomically(path) as file:
        file.write(b"new")
        file.flush()
        assert path.read_text(encoding="utf-8") == "old ü"
    assert path.read_bytes() == b"new"
    assert names(tmp_path) == ["a.json"]


def test_a_block_that_fails_leaves_the_old_file_and_no_temporary_one(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(b"old")
    with pytest.raises(KeyboardInterrupt):
        write_and_fail(path, b"half", KeyboardInterrupt())
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["a.json"]


def test_a_full_disk_is_an_error_and_leaves_nothing(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64, hard))  # like a full disk: files end after 64 bytes
    try:
        with pytest.raises(OSError, match="File too large"):
            write_text_atomically(tmp_path / "a", "x" * 100)
        # What does not fit must not hide why the block failed.
        with pytest.raises(ValueError, match="the reason"):
            write_and_fail(tmp_path / "a", b"x" * 100, ValueError("the reason"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert names(tmp_path) == []


def test_a_folder_that_is_missing_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        write_text_atomically(tmp_path / "missing" / "a", "text")


def test_a_name_of_any_length_that_the_file_system_takes(tmp_path: Path) -> None:
    for name in ("n" * 255, "ü" * 127):
        write_text_atomically(tmp_path / name, name)
        assert (tmp_path / name).read_text(encoding="utf-8") == name


def test_a_file_may_refuse_to_overwrite_and_has_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "key"
    with write_atomically(path, mode=0o600, overwrite=False) as file:
        file.write(b"first")
        assert [entry.stat().st_mode & 0o777 for entry in tmp_path.iterdir()] == [0o600]
    with pytest.raises(FileExistsError), write_atomically(path, overwrite=False) as file:
        file.write(b"second")
    assert path.read_bytes() == b"first"
    assert path.stat().st_mode & 0o777 == 0o600
    assert names(tmp_path) == ["key"]


def test_the_umask_counts(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_text_atomically(tmp_path / "a", "text")
    finally:
        os.umask(before)
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o640


def _write_often(path: Path, letter: str) -> None:
    for _ in range(30):
        write_text_atomically(path, letter * 10_000)


def test_writers_at_the_same_time_never_mix(tmp_path: Path) -> None:
    path = tmp_path / "a"
    write_text_atomically(path, "a" * 10_000)
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=_write_often, args=(path, letter)) for letter in "bcd"]
    for writer in writers:
        writer.start()
    while any(writer.is_alive() for writer in writers):
        text = path.read_text(encoding="utf-8")
        assert text == text[0] * 10_000
    assert [writer.exitcode for writer in writers] == [0, 0, 0]
    assert names(tmp_path) == ["a"]


def test_a_discarded_file_is_gone(tmp_path: Path) -> None:
    writing = AtomicFile(tmp_path / "a")
    writing.file.write(b"half")
    writing.discard()
    assert names(tmp_path) == []
