"""What a run prints when it ends."""

import io
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from phalanx.observe.outcome import print_outcome, save_curves
from phalanx.runs.events import EventFile, Note
from phalanx.runs.folder import RunFolder
from phalanx.runs.summary import Summary

SUMMARY = Summary(
    finished=True,
    best={"top1": 0.97, "topk": 0.999, "step": 20, "epoch": 2.0},
    last={"top1": 0.96, "topk": 0.998, "loss": 0.2, "step": 30},
    k=3,
    epochs=3.0,
    steps=30,
    samples_per_s=812.34,
    shares={"data": 0.1, "compute": 0.9, "exchange": 0.001, "update": 0.0},
    workers=1,
    slowest=None,
    train_s=3.0,
    wall_s=4.21,
    model="wrn10_1",
    parameters=77_562,
    data="digits",
    decisions={},
    command="phalanx train digits",
)


def printed(summary: Summary, run: Path) -> dict[str, str]:
    console = Console(file=io.StringIO(), width=120)
    print_outcome(console, RunFolder(run), summary)
    assert isinstance(console.file, io.StringIO)
    first, *rows = console.file.getvalue().splitlines()
    return {"": first, **dict(row.split(": ", 1) for row in rows)}


def test_a_finished_run_says_what_it_reached_and_what_is_next(tmp_path: Path) -> None:
    (tmp_path / "log.txt").write_text("")
    (tmp_path / "checkpoints").mkdir()
    rows = printed(SUMMARY, tmp_path)
    assert rows.pop("next").startswith(f"phalanx eval {tmp_path}   phalanx predict {tmp_path} IMAGE…")
    assert rows == {
        "": "done",
        "best": "top-1 97.00 %, top-3 99.90 % at step 20",
        "last": "top-1 96.00 %, top-3 99.80 % at step 30",
        "trained": "3.00 epochs, 30 steps in 4.2 s",
        "speed": "812.3 samples/s (data 10 %, compute 90 %)",
        "folder": f"{tmp_path}: log.txt, checkpoints/",
    }


def test_a_stopped_run_says_how_to_resume(tmp_path: Path) -> None:
    stopped = replace(SUMMARY, finished=False, best=None, last=None, workers=2, slowest="worker 1 was slowest")
    rows = printed(stopped, tmp_path)
    assert rows[""] == "stopped"
    assert rows["resume"] == f"phalanx train --resume {tmp_path}"
    assert rows["workers"] == "2; worker 1 was slowest"
    assert not {"best", "last", "next"} & rows.keys()


def test_curves_of_a_run_without_a_step_are_no_error(tmp_path: Path) -> None:
    events = EventFile(tmp_path)
    events.take(Note(0, "stopped early"))
    events.close()
    save_curves(RunFolder(tmp_path))
    assert not list(tmp_path.glob("curves.*"))
