"""Run folders as training leaves them, made in milliseconds: real events of the one schema, any number of steps."""

import json
import math
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from phalanx.config.resolve import resolve
from phalanx.runs import events as ev
from phalanx.runs.folder import RunFolder, write_run_file

BEGAN = 1_700_000_000.0


def make_run(
    run: Path, *, steps: int = 20, finished: bool = True, workers: int = 1, slow: int = 1, figures: bool = False
) -> Path:
    """A run with an event for each step and an evaluation for each tenth of it. Worker `slow` computes the longest.

    `figures`: with each step also the machine's, as in real runs.
    """
    run.mkdir(parents=True, exist_ok=True)
    for name, content in _settings().items():
        (run / name).write_bytes(content)
    per_epoch = max(1, steps // 10)
    start = ev.Start("phalanx train digits", "tiny", 1000, "digits", 1442, 355, 10, per_epoch, steps, 64, {}, [])
    records = [{**ev.record_of(start), "t": BEGAN}]
    for step in range(1, steps + 1):
        records.append(_step(step, per_epoch, workers, slow))
        if figures:
            records.append({**_FIGURES, "t": BEGAN + step, "step": step})
        if step % per_epoch == 0:
            top1 = 0.9 * step / steps
            done = ev.Eval(step, step / per_epoch, 2 - top1, top1, min(1.0, top1 + 0.05), 3, 355, 0.1, True)
            records.append({**ev.record_of(done), "t": BEGAN + step + 0.1})
    if finished:
        records.append({**ev.record_of(ev.End(steps, float(steps))), "t": BEGAN + steps + 1})
    write_run_file(run / ev.EVENTS_FILE, "".join(json.dumps(record) + "\n" for record in records))
    (run / "log.txt").write_text("".join(f"step {step} of {steps}\n" for step in range(1, min(steps, 200) + 1)))
    return run


@cache
def _settings() -> Mapping[str, bytes]:
    """The files that have the settings of a run: all defaults."""
    with TemporaryDirectory() as folder:
        RunFolder(Path(folder)).write_config(resolve([]))
        return {path.name: path.read_bytes() for path in Path(folder).iterdir()}


_TIMES: dict[str, Any] = {"data_s": 0.001, "compute_s": 0.08, "exchange_s": 0.01, "update_s": 0.002}
# Of each kind one event is made, and changed for each step: there may be 100,000.
_STEP = ev.record_of(ev.Step(0, 1, 1, 1, 1.0, 0.5, 0.7, 0.1, 640.0, **_TIMES, bytes_sent=3e5))
_FIGURES = ev.record_of(ev.System(0, "here", 0.5, 1.0, 4 << 30, 8 << 30, 1 << 30))


def _step(step: int, per_epoch: int, workers: int, slow: int) -> ev.Record:
    loss = 2.3 * math.exp(-step / 5e4) + 0.1 * math.sin(step)
    ranks = [
        {**_TIMES, "samples_per_s": 320.0, **({"compute_s": 0.16, "exchange_s": 0.001} if rank == slow else {})}
        for rank in range(workers)
    ]
    here = {"step": step, "epoch": 1 + step // per_epoch, "batches": per_epoch, "loss": loss}
    return {**_STEP, **here, "t": BEGAN + step, "ranks": ranks if workers > 1 else []}


def add_evaluation(run: Path, name: str = "eval", classes: tuple[str, ...] = ("cat", "dog")) -> None:
    """What `phalanx eval` leaves: of each class, one image is taken for the next class."""
    folder = run / name
    (folder / "mistakes").mkdir(parents=True)
    following = dict(zip(classes, (*classes[1:], classes[0]), strict=True))
    rows = [
        {"name": one, "samples": 10, "correct": 9, "top1": 0.9, "confused_with": following[one], "times": 1}
        for one in classes
    ]
    confusions = [{"class": one, "answer": following[one], "times": 1} for one in classes]
    about = {"step": 20, "data": "digits", "samples": 10 * len(classes), "top1": 0.9, "topk": 1.0, "k": 3, "loss": 0.4}
    (folder / "eval.json").write_text(json.dumps({**about, "classes": rows, "confusions": confusions}))
    mistakes = []
    for number, one in enumerate(classes):
        (folder / "mistakes" / f"{number}.png").write_bytes(_PNG)
        about_one = {"name": f"{one}-7.png", "class": one, "answer": following[one], "probability": 0.97}
        mistakes.append({**about_one, "image": f"mistakes/{number}.png"})
    (folder / "mistakes.json").write_text(json.dumps({"mistakes": mistakes}))


# one grey pixel
_PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010800000000"
    "3a7e9b550000000a49444154789c6368000000820081770d72ca0000000049454e44ae426082"
)
