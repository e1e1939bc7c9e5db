"""Events prove which samples were used; what a resume takes back does not count."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from phalanx.runs import events as ev
from phalanx.runs.events import EVENTS_FILE, read_events
from phalanx.runs.used_samples import samples_used


def write(run: Path, *records: dict[str, Any]) -> Path:
    (run / EVENTS_FILE).write_text("".join(json.dumps({"t": 1.0, **record}) + "\n" for record in records))
    return run


def step(number: int, *used: list[int]) -> dict[str, Any]:
    event = ev.Step(number, 1, 1, 1, 1.0, 0.5, 0.9, 0.1, 1.0, 0.0, 0.0, 0.0, 0.0, used=list(used))
    return {"kind": "step", **asdict(event)}


START = {"kind": "start", **asdict(ev.Start("phalanx train", "m", 1, "d", 10, 1, 2, 5, 10, 2, {}, []))}


def test_each_place_is_counted(tmp_path: Path) -> None:
    write(tmp_path, START, step(2, [1, 0, 8]), step(4, [1, 8, 10], [2, 0, 4]), step(5, [2, 3, 6]))
    used = samples_used(read_events(tmp_path))
    assert used[1].tolist() == [1] * 10
    assert used[2].tolist() == [1, 1, 1, 2, 1, 1, 0, 0, 0, 0]


def test_steps_that_were_taken_back_do_not_count(tmp_path: Path) -> None:
    resume = {"kind": "resume", **asdict(ev.Resume(3, 3, "", []))}
    # The checkpoint of step 3 lies between two step events: what it had used since the first is told by the next.
    write(tmp_path, START, step(2, [1, 0, 4]), step(4, [1, 4, 8]), START, resume, step(5, [1, 4, 10]))
    assert samples_used(read_events(tmp_path))[1].tolist() == [1] * 10
