"""The table of faults: its expectations are whole, its measurements find what is wrong, and some cells are tests."""

import json
from pathlib import Path

import pytest
from benchmarks.chaos import measure
from benchmarks.chaos.expected import TABLE, expected
from benchmarks.chaos.faults import FAULTS
from benchmarks.chaos.modes import MODES, WORKER_SAMPLES
from benchmarks.chaos.run_cell import Measured
from benchmarks.chaos.table import row, summary

ASYNC, SYNC = MODES["async"], MODES["sync"]


def test_every_fault_has_an_expectation_in_every_mode() -> None:
    for fault in FAULTS.values():
        for mode in MODES.values():
            if not fault.why_not(mode):
                for restarts in (0, 1):
                    assert expected(fault.name, mode, restarts).outcome
    assert FAULTS.keys() < TABLE.keys()


def events(run: Path, *records: dict[str, object]) -> Path:
    run.mkdir()
    lines = [json.dumps({"t": float(number), **record}) for number, record in enumerate(records)]
    (run / "events.jsonl").write_text("\n".join(lines) + "\n")
    return run


START: dict[str, object] = {
    **{"kind": "start", "command": "", "model": "", "parameters": 1, "data": "", "train_samples": 10, "val_samples": 5},
    **{"classes": 2, "steps_per_epoch": 3, "total_steps": 9, "samples_per_step": 4, "decisions": {}, "notes": []},
}
MEANS = {"batch": 1, "batches": 3, "loss": 1.0, "top1": 0.5, "topk": 0.5, "lr": 0.1, "samples_per_s": 1.0}
TIMES = {"data_s": 0.1, "compute_s": 0.1, "exchange_s": 0.1, "update_s": 0.1}


def step(number: int, first: int, end: int) -> dict[str, object]:
    return {"kind": "step", "step": number, "epoch": 1, **MEANS, **TIMES, "used": [[1, first, end]]}


def resumed(number: int) -> dict[str, object]:
    return {"kind": "resume", "step": number, "saved_step": number, "checkpoint": "", "warnings": []}


@pytest.mark.parametrize(
    ("after", "wrong"),
    [([step(2, 4, 8)], 0), ([step(2, 5, 8)], 1), ([step(2, 3, 8)], 1)],
    ids=["each once", "one lost", "one repeated"],
)
def test_samples_of_lockstep(tmp_path: Path, after: list[dict[str, object]], wrong: int) -> None:
    run = events(tmp_path / "run", START, step(1, 0, 4), step(2, 4, 8), resumed(1), *after)
    assert measure.wrong_samples(run, SYNC, 2) == (wrong, 0)
    assert measure.steps_lost(run) == 1


def journal(run: Path, *entries: dict[str, object]) -> Path:
    (run / "logs").mkdir(parents=True)
    (run / "logs" / "server-0.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    return run


def update(worker: int, step: int) -> dict[str, object]:
    return {"kind": "update", "worker": worker, "step": step}


@pytest.mark.parametrize(
    ("steps_of_1", "wrong", "away"),
    [
        ([update(1, 0), update(1, 1), update(1, 2), update(1, 3)], 0, 0),
        ([update(1, 0), update(1, 1), update(1, 1), update(1, 2), update(1, 3)], 1, 0),
        ([update(1, 0), update(1, 1), update(1, 3)], 1, 0),
        ([update(1, 0), {"kind": "lost", "worker": 1}, {"kind": "join", "worker": 1}, update(1, 3)], 0, 2),
    ],
    ids=["all", "one twice", "one never", "away for two"],
)
def test_steps_of_workers_at_their_own_pace(
    tmp_path: Path, steps_of_1: list[dict[str, object]], wrong: int, away: int
) -> None:
    run = events(tmp_path / "run", START)
    journal(run, {"kind": "start"}, *(update(0, step) for step in range(4)), *steps_of_1)
    assert measure.wrong_samples(run, ASYNC, 4) == (wrong * WORKER_SAMPLES, away * WORKER_SAMPLES)


def test_a_cell_that_deviates_is_marked() -> None:
    good = Measured("NaN", "sync", 0, outcome="ends, and can be resumed")
    bad = Measured("NaN", "sync", 1, outcome="hangs", deviations=("hangs, expected: goes on",))
    assert "✗" not in row(good)
    assert "hangs ✗ hangs, expected: goes on" in row(bad)
    assert summary([good, bad]).startswith("2 cells, 1 of them ✗\n")
