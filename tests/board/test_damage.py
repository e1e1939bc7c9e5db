"""A damaged run folder is shown as such; it never hides the others, and never makes the board fail."""

import json
import random
from pathlib import Path

import pytest

from tests.board.made_runs import add_evaluation, make_run
from tests.board.served import Served, served

PARTS = ("", "/curves", "/job", "/config", "/log", "/evaluation/eval")


def look(board: Served, key: str, name: str) -> None:
    """Every part of a run; each gives an answer or says what is wrong."""
    found = {part: board.ask(f"/api/run/{key}{part}").status for part in PARTS}
    assert set(found.values()) <= {200, 404, 409}, (name, found)
    assert found[""] == found["/job"] == found["/curves"] == found["/config"] == 200, (name, found)


FILES = (
    "events.jsonl",
    "config.yaml",
    "job.json",
    "eval/eval.json",
    "eval/mistakes.json",
    "notes.json",
    "origins.json",
)
CONTENTS = (
    b"",
    b"\xff\xfe\0\n",
    b"{\n",
    b"[" * 100_000,
    b"[1]\n",
    b'{"kind": 3}\n',
    b'{"roles": 7}',
    b'{"roles": [{"step": "x"}]}',
)


def test_damaged_files(tmp_path: Path) -> None:
    make_run(tmp_path / "whole")
    for file in FILES:
        for number in range(len(CONTENTS)):
            run = make_run(tmp_path / f"{file.replace('/', '-')}-{number}")
            add_evaluation(run)
            (run / file).write_bytes(CONTENTS[number])
    (make_run(tmp_path / "half-a-letter") / "config.yaml").write_bytes(b'name: "\\ud800"\n')
    with served(tmp_path) as board:
        rows = board.rows()
        for name, row in rows.items():
            look(board, row["key"], name)
        assert board.ask("/metrics").status == 200
    assert rows["whole"]["state"] == "finished"
    assert rows["whole"]["best"] == pytest.approx(0.9)
    for number in (1, 2, 4, 5):
        assert rows[f"events.jsonl-{number}"]["state"] == "damaged"
        assert "line 1 is not an event" in rows[f"events.jsonl-{number}"]["remarks"][0]
    for name in ("config.yaml-1", "config.yaml-2"):
        assert any("config.yaml cannot be read" in remark for remark in rows[name]["remarks"])


def test_a_line_in_the_middle_costs_that_line_only(tmp_path: Path) -> None:
    run = make_run(tmp_path / "one")
    lines = (run / "events.jsonl").read_text().splitlines()
    lines[5] = lines[5][:40]
    (run / "events.jsonl").write_text("\n".join(lines) + "\n")
    with served(tmp_path) as board:
        row = board.rows()["one"]
        curves = board.ask(f"/api/run/{row['key']}/curves").json()["series"]
    assert row["state"] == "damaged"
    assert row["step"] == 20
    assert len(curves["train/loss"]["x"]) == 19


def test_an_unfinished_last_line_is_no_damage(tmp_path: Path) -> None:
    """A run that is writing right now."""
    run = make_run(tmp_path / "one", finished=False)
    with served(tmp_path) as board:
        key = board.key("one")
        assert board.ask(f"/api/run/{key}/curves").json()["last_step"] == 20
        whole = json.dumps({**json.loads((run / "events.jsonl").read_text().splitlines()[-2]), "step": 21}) + "\n"
        with (run / "events.jsonl").open("a") as file:
            file.write(whole[:30])
            file.flush()
            assert board.ask(f"/api/run/{key}/curves").json()["last_step"] == 20
            file.write(whole[30:])
        assert board.ask(f"/api/run/{key}/curves").json()["last_step"] == 21
        assert not board.rows()["one"]["damaged"]


def test_random_damage(tmp_path: Path) -> None:
    """Bytes of any file are changed, cut or doubled: 40 runs, each with other damage."""
    chance = random.Random(7)
    for number in range(40):
        run = make_run(tmp_path / f"run-{number}")
        add_evaluation(run)
        (run / "job.json").write_text(json.dumps({"roles": [{"name": "trainer-0", "times": {}}], "faults": [{}]}))
        file = run / chance.choice(["events.jsonl", "config.yaml", "job.json", "eval/eval.json", "eval/mistakes.json"])
        content = bytearray(file.read_bytes())
        for _ in range(chance.randrange(1, 20)):
            content[chance.randrange(len(content))] = chance.randrange(256)
        begin = chance.randrange(len(content))
        file.write_bytes(bytes(content[:begin] if number % 3 else content + content[begin:]))
    with served(tmp_path) as board:
        for name, row in board.rows().items():
            look(board, row["key"], name)


def test_a_folder_that_goes_away(tmp_path: Path) -> None:
    run = make_run(tmp_path / "one")
    with served(tmp_path) as board:
        key = board.key("one")
        for file in run.iterdir():
            file.unlink()
        run.rmdir()
        assert board.rows() == {}
        assert board.ask(f"/api/run/{key}").status == 404


def test_a_run_that_has_not_begun(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "config.yaml").write_text("name: digits\n")
    with served(tmp_path) as board:
        row = board.rows()["one"]
        look(board, row["key"], "one")
    assert row["recipe"] == "digits"
    assert row["state"] in ("waiting", "damaged")
