"""`bench comm` with real processes, on a small network: tables, files, history; and what goes wrong is told."""

import json
from pathlib import Path

import pytest
from rich.console import Console

from phalanx.bench import comm, history
from phalanx.bench.show_history import show_history
from phalanx.bench.team import TeamFailed, run_team
from phalanx.errors import UserError


@pytest.fixture(autouse=True)
def _own_history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def test_what_it_costs_is_measured_and_remembered(tmp_path: Path) -> None:
    console = Console(file=(tmp_path / "screen").open("w"), width=200)
    comm.bench_comm(
        console,
        ["cost"],
        workers=2,
        servers=2,
        rounds=2,
        model="cifar_resnet8",
        batch_size=1,
        markdown=tmp_path / "comm.md",
        json_file=tmp_path / "comm.json",
    )
    told = json.loads((tmp_path / "comm.json").read_text())
    figures = told["figures"]
    assert 0 < figures["collective of independent"] < 10
    assert 0 < figures["pserver sync of independent"] < 10
    assert [table["columns"][1] for table in told["tables"]] == ["images/s"]
    assert "| independent |" in (tmp_path / "comm.md").read_text()
    assert [entry.benchmark for entry in history.entries()] == ["comm"]

    show_history(Console(file=(tmp_path / "table").open("w")), "comm", tmp_path / "history.png")
    assert (tmp_path / "history.png").stat().st_size > 1000


def test_an_exchange_is_timed_in_every_round() -> None:
    job = {"model": "cifar_resnet8", "size": 32, "threads": 1, "tcp": True, "measure": "exchange", "rounds": 2}
    (told,) = run_team(comm.WORKER, job, workers=1, servers=1, tcp=True, progress=lambda share: None)
    assert {name: len(each) for name, each in told["seconds"].items()} == {
        "all-reduce": 2,
        "local update": 2,
        "pserver": 2,
    }


def test_a_process_that_fails_ends_the_others_and_is_quoted() -> None:
    job = {"model": "no_such_model", "size": 32, "threads": 1, "tcp": False, "measure": "exchange", "rounds": 1}
    with pytest.raises(TeamFailed, match="no_such_model"):
        run_team(comm.WORKER, job, workers=1, servers=0, tcp=False, progress=lambda share: None)


def test_a_damaged_line_of_the_history_is_passed_over() -> None:
    history.append(history.make_entry("comm", {"a": 1.0}))
    with history.place().open("a") as file:
        file.write('{"benchmark": "com')
    assert [entry.figures for entry in history.entries("comm")] == [{"a": 1.0}]


def test_no_history_is_told() -> None:
    with pytest.raises(UserError, match="nothing is remembered"):
        show_history(Console(), None, None)
