"""Plan beside fact: a plan that is made for a run's folder is compared with what the run measured, if it fits."""

import json
from pathlib import Path
from typing import Any

import pytest

import phalanx
from phalanx.board.planned import plan_beside_fact
from phalanx.config.resolve import resolve
from phalanx.config.text import read_yaml
from phalanx.observe.history import History
from tests.board.made_runs import make_run
from tests.board.served import Served, served

PLANNED: dict[str, Any] = {"device": "cpu-avx2", "workers": [1, 2], "model": resolve([]).config.model.name}


def shown(board: Served, name: str) -> Any:
    return board.ask(f"/api/run/{board.key(name)}/job").json()["plan"]


def test_a_plan_made_before_the_run(tmp_path: Path) -> None:
    run = tmp_path / "run"
    plan = phalanx.plan("digits", out=run, **PLANNED)
    assert f"--out {run}" in plan.command
    expected = plan.rows[0].images_per_s.expected
    make_run(run)
    kept = json.loads((run / "plan.json").read_text())
    (run / "plan.json").write_text(json.dumps({**kept, "made": 1.0}))
    with served(tmp_path) as board:
        found = shown(board, "run")
    assert (found["made_before"], found["remark"]) == (True, "")
    rows = {row["name"]: row for row in found["rows"]}
    assert rows["images_per_s"]["planned"][0] == pytest.approx(expected)
    assert rows["step_s"]["measured"] == pytest.approx(0.093)
    assert rows["images_per_s"]["measured"] == pytest.approx(64 / 0.093)
    assert rows["exchange_s"]["measured"] == pytest.approx(0.01)
    assert set(rows) == {"images_per_s", "step_s", "data_s", "compute_s", "exchange_s", "update_s"}


def test_a_plan_made_afterwards_says_so(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    phalanx.plan("digits", out=run, **PLANNED)
    with served(tmp_path) as board:
        assert shown(board, "run")["made_before"] is False


@pytest.mark.parametrize(
    ("change", "plan"),
    [
        ({"model": {"name": "resnet50"}}, {}),
        ({"exchange": {"workers": 8, "method": "collective"}}, {}),
        ({"exchange": {"workers": 2, "method": "pserver"}}, {}),
        ({}, {"batch_size": 128}),
    ],
    ids=["another model", "more workers", "another method", "another batch"],
)
def test_a_plan_for_another_job_is_not_compared(tmp_path: Path, change: dict[str, Any], plan: dict[str, Any]) -> None:
    run = make_run(tmp_path / "run")
    phalanx.plan("digits", out=run, **PLANNED, **plan)
    config = {**read_yaml((run / "config.yaml").read_text()), **change}
    history = History(run)
    history.refresh(steps=True)
    found = plan_beside_fact(json.loads((run / "plan.json").read_text()), config, history)
    assert found["rows"] == []
    assert "made for another job" in found["remark"]


def test_damaged_plans(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    with served(tmp_path) as board:
        for content in ('{"best": 3, "rows": {"a": 1}}', '{"best": {"parts_s": 1}, "made": "x"}', "{", "[1]"):
            (run / "plan.json").write_text(content)
            found = shown(board, "run")
            assert found is None or found["rows"] == [], content


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(phalanx.Error, match="the plan cannot be kept"):
        phalanx.plan("digits", out=tmp_path / "file" / "run", **PLANNED)
