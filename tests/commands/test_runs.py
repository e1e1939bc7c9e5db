"""The table of runs: finished, running, lost and damaged ones."""

import io
import json
import shutil
from pathlib import Path

import pytest
from rich.console import Console

from phalanx.commands.runs import TITLES, read_runs, show_runs
from phalanx.errors import UserError
from phalanx.runs.lock import hold_run


@pytest.fixture
def runs(digits_run: Path, tmp_path: Path) -> Path:
    """Copies of one run: complete, without its end (as if killed), and with a damaged line."""
    for name in ("whole", "cut", "damaged"):
        shutil.copytree(digits_run, tmp_path / name, ignore=shutil.ignore_patterns("checkpoints"))
    events = tmp_path / "cut/events.jsonl"
    lines = [line for line in events.read_text().splitlines() if json.loads(line)["kind"] != "end"]
    events.write_text("\n".join(lines[: len(lines) // 2]) + "\n")
    damaged = tmp_path / "damaged/events.jsonl"
    damaged.write_text("{}\n" + damaged.read_text())
    return tmp_path


def table(folder: Path, sort: str = "name", state: str | None = None, match: str | None = None) -> list[list[str]]:
    console = Console(file=io.StringIO(), width=200)
    show_runs(console, folder, sort, state, match)
    written = console.file
    assert isinstance(written, io.StringIO)
    return [line.split("\t") for line in written.getvalue().splitlines()]


def test_states(runs: Path) -> None:
    titles, *rows = table(runs)
    assert tuple(titles) == TITLES
    assert [row[:2] for row in rows] == [["cut", "lost"], ["damaged", "damaged"], ["whole", "finished"]]
    whole = dict(zip(TITLES, rows[2], strict=True))
    assert (whole["progress"], whole["left"]) == ("100 %", "")
    assert whole["best"].endswith(" %")
    assert whole["hosts"]


def test_a_run_that_is_trained_has_a_time_left(runs: Path) -> None:
    with hold_run(runs / "cut"):
        (row,) = [row for row in read_runs(runs) if row.name == "cut"]
        assert row.state == "running"
        assert row.left_s is not None
        assert row.left_s > 0
        assert [row[0] for row in table(runs, state="running")[1:]] == ["cut"]
    assert not [row for row in read_runs(runs) if row.state == "running"]


def test_filters_and_order(runs: Path) -> None:
    assert [row[0] for row in table(runs, match="hol")[1:]] == ["whole"]
    assert table(runs, sort="best")[1][0] == "whole"
    assert table(runs / "whole")[1][1] == "finished"
    assert table(runs, match="nothing") == [[f"no such run in {runs}"]]


def test_refusals(runs: Path) -> None:
    for flags in ({"sort": "colour"}, {"state": "asleep"}):
        with pytest.raises(UserError, match="cannot be"):
            table(runs, **flags)
    with pytest.raises(UserError, match="is no folder"):
        table(runs / "nowhere")
