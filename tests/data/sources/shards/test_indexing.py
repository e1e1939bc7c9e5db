"""Indexes are made once, kept beside the data or in the cache folder, and shared by processes that start together."""

import multiprocessing
import os
import resource
import time
from pathlib import Path

import pytest

from phalanx.data.sources.shards.index import IndexBuilder, Label
from phalanx.data.sources.shards.indexing import Indexed, Reader, Shard, indexed
from phalanx.data.sources.window import Damaged, Window
from phalanx.errors import UserError
from tests.data.samples import assert_helpful


class Lines(Reader):
    """A format of lines; tells in a log that it read a file. `!` is damage."""

    def __init__(self, log: Path, setting: str = "", wait_s: float = 0.0) -> None:
        self.log, self.setting, self.wait_s = log, setting, wait_s

    @property
    def fingerprint(self) -> str:
        return f"lines {self.setting}"

    def beside(self, path: Path) -> tuple[Path, ...]:
        return (path.with_suffix(".names"),)

    def scan(self, window: Window, builder: IndexBuilder) -> None:
        with self.log.open("a") as log:
            log.write(f"{window.path.name} {os.getpid()}\n")
        time.sleep(self.wait_s)
        offset = 0
        for line in window.bytes_at(0, window.size, "lines").splitlines(keepends=True):
            if line.startswith(b"!"):
                raise Damaged(offset, "it says so itself")
            builder.add(offset, len(line) - 1, Label(len(line) - 1))
            offset += len(line)

    def image(self, stored: bytes, mark: int) -> bytes:
        return stored


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "data").mkdir()
    (tmp_path / "log").write_text("")
    return tmp_path / "log"


def data_file(log: Path, name: str = "a.lines", text: str = "one\nthree\n") -> Path:
    path = log.parent / "data" / name
    path.write_text(text)
    return path


def opened(log: Path, *paths: Path, setting: str = "", salvage: bool = False) -> Indexed:
    return indexed([Shard.of(path) for path in paths], Lines(log, setting), salvage=salvage)


def times_read(log: Path) -> int:
    return len(log.read_text().splitlines())


def lengths(found: Indexed) -> list[list[int]]:
    return [index.lengths.tolist() for index in found.indexes]


def test_made_once_and_kept_beside_the_data(log: Path) -> None:
    first, second = data_file(log), data_file(log, "b.lines", "four\n")
    for _ in range(3):
        assert lengths(opened(log, first, second)) == [[3, 5], [4]]
    assert times_read(log) == 2
    kept = sorted(path.name for path in (log.parent / "data" / ".phalanx").iterdir())
    assert kept == ["a.lines.index", "b.lines.index", "lock"]
    assert not (log.parent / "cache").exists()


def test_made_anew_when_anything_changed(log: Path) -> None:
    path = data_file(log)
    opened(log, path)
    data_file(log, text="longer\nnow\n")
    assert lengths(opened(log, path)) == [[6, 3]]
    os.utime(path, ns=(0, 12345))
    opened(log, path)
    assert times_read(log) == 3
    opened(log, path, setting="other")
    assert times_read(log) == 4
    path.with_suffix(".names").write_text("now there is one")
    opened(log, path, setting="other")
    assert times_read(log) == 5
    kept = log.parent / "data" / ".phalanx" / "a.lines.index"
    kept.write_bytes(kept.read_bytes()[:-1])
    assert lengths(opened(log, path, setting="other")) == [[6, 3]]
    assert times_read(log) == 6


def test_a_folder_that_cannot_be_written(log: Path) -> None:
    path = data_file(log)
    path.parent.chmod(0o555)
    for _ in range(2):
        assert opened(log, path).notes == []
    path.parent.chmod(0o755)
    assert times_read(log) == 1
    assert not (path.parent / ".phalanx").exists()
    kept = [entry.name for entry in (log.parent / "cache" / "phalanx" / "index").iterdir() if entry.name != "lock"]
    assert len(kept) == 1
    assert kept[0].endswith("-a.lines.index")


def test_no_place_at_all_is_told(log: Path) -> None:
    path = data_file(log)
    (log.parent / "data" / ".phalanx").write_text("")
    (log.parent / "cache").write_text("")
    found = opened(log, path)
    assert lengths(found) == [[3, 5]]
    assert "could not be cached" in found.notes[0]


def test_a_name_that_is_too_long_with_an_ending(log: Path) -> None:
    path = data_file(log, "x" * 250)
    for _ in range(2):
        assert lengths(opened(log, path)) == [[3, 5]]
    assert times_read(log) == 1, "the cache folder has shorter names"


def test_damage_is_refused_or_told(log: Path) -> None:
    path = data_file(log, text="one\nthree\n!four\n")
    with pytest.raises(UserError) as caught:
        opened(log, path)
    assert_helpful(caught.value, "damaged at offset 10", "says so itself", "2 samples before it", "data.salvage=true")
    assert not list((log.parent / "data" / ".phalanx").glob("*.index"))
    for _ in range(2):
        found = opened(log, path, salvage=True)
        assert lengths(found) == [[3, 5]]
        assert f"{path}: damaged at offset 10" in found.notes[0]
    with pytest.raises(UserError):
        opened(log, path)


def test_many_files_do_not_say_the_same(log: Path) -> None:
    paths = [data_file(log, f"{i}.lines", "one\n!\n") for i in range(9)]
    notes = opened(log, *paths, salvage=True).notes
    assert (len(notes), notes[-1]) == (4, "… and 6 more like it")


def test_a_file_without_samples(log: Path) -> None:
    with pytest.raises(UserError) as caught:
        opened(log, data_file(log, text=""))
    assert_helpful(caught.value, "holds no samples")


def _open_in_child(log: Path, paths: list[Path], queue: "multiprocessing.Queue[list[list[int]]]") -> None:
    queue.put(lengths(indexed([Shard.of(path) for path in paths], Lines(log, wait_s=0.2), salvage=False)))


def test_processes_that_start_together_make_one(log: Path) -> None:
    paths = [data_file(log), data_file(log, "b.lines", "four\n")]
    context = multiprocessing.get_context("fork")
    queue: multiprocessing.Queue[list[list[int]]] = context.Queue()
    children = [context.Process(target=_open_in_child, args=(log, paths, queue)) for _ in range(4)]
    for child in children:
        child.start()
    answers = [queue.get(timeout=60) for _ in children]
    for child in children:
        child.join()
    assert answers == [[[3, 5], [4]]] * 4
    assert times_read(log) == 2, "each file is read by one process"
    assert not list((log.parent / "data" / ".phalanx").glob("*.part"))


def test_a_process_that_dies_leaves_nothing_half_done(log: Path) -> None:
    path = data_file(log)
    context = multiprocessing.get_context("fork")
    reader = Lines(log, wait_s=60)
    child = context.Process(target=indexed, args=([Shard.of(path)], reader), kwargs={"salvage": False})
    child.start()
    while not times_read(log):
        time.sleep(0.01)
    child.kill()
    child.join()
    assert lengths(opened(log, path)) == [[3, 5]]


def test_an_index_is_whole_or_not_there(log: Path) -> None:
    path = data_file(log)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64, hard))  # like a full disk: files end after 64 bytes
    try:
        found = opened(log, path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert "could not be cached" in found.notes[0]
    assert [entry.name for entry in (log.parent / "data" / ".phalanx").iterdir()] == ["lock"]
