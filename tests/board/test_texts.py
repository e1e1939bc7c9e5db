"""Logs of any size and any lines: the page gets a part that it can show, and the board's memory stays small."""

from pathlib import Path

from phalanx.board.places import Place
from phalanx.board.texts import lines_of


def log_of(run: Path, content: bytes) -> Place:
    run.mkdir()
    (run / "log.txt").write_bytes(content)
    return Place("key", "run", run)


def test_the_end_of_a_long_log(tmp_path: Path) -> None:
    place = log_of(tmp_path / "run", b"".join(b"line %d of many\n" % number for number in range(50_000)))
    found = lines_of(place, "log.txt")
    assert found["cut"]
    assert len(found["lines"]) == 2000
    assert found["lines"][-1] == "line 49999 of many"


def test_a_search_finds_lines_before_the_end(tmp_path: Path) -> None:
    place = log_of(tmp_path / "run", b"An ERROR here\n" + b"nothing\n" * 50_000)
    found = lines_of(place, "log.txt", "error")
    assert found["lines"] == ["An ERROR here"]
    assert not found["cut"]
    assert lines_of(place, "log.txt", "thing")["cut"]


def test_a_line_without_an_end(tmp_path: Path) -> None:
    found = lines_of(log_of(tmp_path / "run", b"x" * 20_000 + b" needle"), "log.txt", "needle")
    assert len(found["lines"]) == 1
    assert len(found["lines"][0]) <= 4000


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    assert lines_of(log_of(tmp_path / "run", b"\xff\xfe\0\nnext\r\nlast"), "log.txt")["lines"][1:] == ["next", "last"]
