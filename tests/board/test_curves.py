"""Curves of very long runs, tables of many runs, and text for Prometheus."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from phalanx.board.curves import downsampled
from tests.board.made_runs import make_run
from tests.board.served import served


def test_many_steps_become_as_many_points_as_are_asked_for(tmp_path: Path) -> None:
    make_run(tmp_path / "long", steps=20_000)
    with served(tmp_path) as board:
        path = f"/api/run/{board.key('long')}/curves"
        whole = board.ask(f"{path}?points=800")
        loss = whole.json()["series"]["train/loss"]
        assert len(loss["x"]) <= 800
        assert (loss["x"][0], loss["x"][-1]) == (1, 20_000)
        assert len(whole.body) < 300_000
        zoomed = board.ask(f"{path}?points=800&from=500&to=600").json()["series"]["train/loss"]
        assert zoomed["x"] == list(range(499, 602))
        assert max(board.ask(f"{path}?axis=epoch").json()["series"]["val/top1"]["x"]) == pytest.approx(10)
        assert max(board.ask(f"{path}?axis=time").json()["series"]["train/loss"]["x"]) == pytest.approx(20_000)


def test_no_peak_is_lost() -> None:
    values = np.zeros(100_000)
    values[[12_345, 77_777]] = 5.0, -5.0
    x, y = downsampled(np.arange(100_000.0), values, 600)
    assert len(x) <= 600
    assert {12_345, 77_777} <= set(x.tolist())
    assert (y.max(), y.min()) == (5.0, -5.0)
    assert (np.diff(x) > 0).all()


def test_smoothing(tmp_path: Path) -> None:
    make_run(tmp_path / "one", steps=200)
    with served(tmp_path) as board:
        path = f"/api/run/{board.key('one')}/curves"
        rough = board.ask(path).json()["series"]["train/loss"]["y"]
        smooth = board.ask(f"{path}?smooth=0.9").json()["series"]["train/loss"]["y"]
    assert np.abs(np.diff(smooth)).max() < 0.5 * np.abs(np.diff(rough)).max()


def test_what_the_page_has_is_not_sent_again(tmp_path: Path) -> None:
    run = make_run(tmp_path / "one", finished=False)
    with served(tmp_path) as board:
        path = f"/api/run/{board.key('one')}/curves"
        state = board.ask(path).json()["state"]
        assert board.ask(f"{path}?have={state}").json() == {"state": state}
        last = json.loads((run / "events.jsonl").read_text().splitlines()[-2])
        with (run / "events.jsonl").open("a") as file:
            file.write(json.dumps({**last, "step": 21, "t": last["t"] + 1}) + "\n")
        answer = board.ask(f"{path}?have={state}").json()
    assert answer["state"] != state
    assert answer["series"]["train/loss"]["x"][-1] == 21


def test_two_hundred_runs(tmp_path: Path) -> None:
    first = make_run(tmp_path / "run-000")
    for number in range(1, 200):
        shutil.copytree(first, tmp_path / f"run-{number:03d}")
    with served(tmp_path) as board:
        rows = board.rows()
        assert len(rows) == 200
        assert {row["state"] for row in rows.values()} == {"finished"}
        text = board.ask("/metrics").body.decode()
    assert text.count("phalanx_run_step{") == 200
    assert 'phalanx_run_state{run="run-007"' in text


def test_notes_are_kept_in_the_folder(tmp_path: Path) -> None:
    run = make_run(tmp_path / "one")
    with served(tmp_path) as board:
        path = f"/api/run/{board.key('one')}/notes"
        assert board.ask(path, "PUT", body=b'{"tags": ["good", " good "], "note": "<b>"}').json()["tags"] == ["good"]
        assert board.ask(path, "PUT", body=b'{"tags": 1}').status == 409
        assert board.ask(path, "PUT", body=b'"' + b"x" * 200_000 + b'"').status == 413
        assert board.rows()["one"]["note"] == "<b>"
    assert "good" in (run / "notes.json").read_text()


def test_the_slow_worker_is_named(tmp_path: Path) -> None:
    make_run(tmp_path / "one", workers=3, slow=2)
    with served(tmp_path) as board:
        job = board.ask(f"/api/run/{board.key('one')}/job").json()
        row = board.rows()["one"]
    assert "worker 2 was slowest" in job["slowest"]
    assert (
        job["slow"]
        == row["slow"]
        == {"rank": 2, "share": pytest.approx(163 / 83 - 1), "part": "compute", "clear": True}
    )
    assert [role["name"] for role in job["roles"]] == ["trainer-0", "trainer-1", "trainer-2"]
    assert job["roles"][0]["waiting"] > job["roles"][2]["waiting"] == 0
