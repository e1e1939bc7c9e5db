"""What a run's files say afterwards: steps done twice, samples lost or repeated, accuracy, weights."""

import hashlib
import json
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.chaos.modes import WORKER_SAMPLES, Mode
from phalanx.runs import checkpoint
from phalanx.runs.events import read_events
from phalanx.runs.used_samples import samples_used


def steps_lost(run: Path) -> int:
    """Steps that were made and, after a resume, made again."""
    lost = reached = 0
    for record in read_events(run, superseded=True):
        if record["kind"] == "resume":
            lost += max(0, reached - record["step"])
            reached = record["step"]
        elif record["kind"] == "step":
            reached = record["step"]
    return lost


def wrong_samples(run: Path, mode: Mode, total_steps: int) -> tuple[int, int]:
    """Samples that were lost or repeated, and those of steps for which a worker was away (only async and ssp)."""
    if mode.lockstep:
        return _wrong_in_lockstep(run), 0
    repeated, missing, away = _updates(run, mode, total_steps)
    return (repeated + missing) * WORKER_SAMPLES, away * WORKER_SAMPLES


def _wrong_in_lockstep(run: Path) -> int:
    """Each epoch uses the beginning of its order, all of it but in the last epoch, and each position once."""
    used = samples_used(read_events(run))
    wrong = 0
    for epoch, times in used.items():
        expected = len(times) if epoch < max(used) else int(times.nonzero()[0].max(initial=-1)) + 1
        wrong += int(abs(times[:expected] - 1).sum())
    return wrong


def _updates(run: Path, mode: Mode, total_steps: int) -> tuple[int, int, int]:
    """Of all workers' steps, by the server's journal: applied twice, never, and never because the worker was away."""
    resumed = [record["step"] for record in read_events(run, superseded=True) if record["kind"] == "resume"]
    applied: list[Counter[int]] = [Counter() for _ in range(mode.workers)]
    marks: list[set[int]] = [set() for _ in range(mode.workers)]  # steps at which a worker was lost or came back
    starts = 0
    for entry in journal(run):
        match entry["kind"]:
            case "start":
                if starts:
                    back_to = resumed[min(starts, len(resumed)) - 1] if resumed else 0
                    applied = [Counter({step: n for step, n in one.items() if step < back_to}) for one in applied]
                starts += 1
            case "update":
                applied[entry["worker"]][entry["step"]] += 1
            case "lost" | "join":
                marks[entry["worker"]].add(max(applied[entry["worker"]], default=-1) + 1)
    repeated = sum(times - 1 for one in applied for times in one.values())
    missing = away = 0
    for rank in range(mode.workers):
        for gap in _gaps(sorted(set(range(total_steps)) - applied[rank].keys())):
            if marks[rank] & set(gap):
                away += len(gap)
            else:
                missing += len(gap)
    return repeated, missing, away


def journal(run: Path) -> list[dict[str, Any]]:
    path = run / "logs" / "server-0.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return [entry for line in lines if (entry := _whole(line)) is not None]


def _whole(line: str) -> dict[str, Any] | None:
    """An entry; None of a line that is still being written, or that a full disk has cut."""
    try:
        return dict(json.loads(line))
    except ValueError:
        return None


def workers_joined(run: Path) -> int:
    """How many workers the server has now, by its journal."""
    here: set[int] = set()
    for entry in journal(run):
        match entry["kind"]:
            case "start":
                here.clear()
            case "join":
                here.add(entry["worker"])
            case "lost":
                here.discard(entry["worker"])
    return len(here)


def _gaps(steps: list[int]) -> list[list[int]]:
    gaps: list[list[int]] = []
    for step in steps:
        if gaps and gaps[-1][-1] == step - 1:
            gaps[-1].append(step)
        else:
            gaps.append([step])
    return gaps


def accuracy(run: Path) -> float | None:
    """The last validation of a finished run."""
    try:
        last = json.loads((run / "summary.json").read_text())["last"]
    except (OSError, ValueError, KeyError):
        return None
    return None if last is None else float(last["top1"])


def not_validated(run: Path) -> int:
    """Images of the validation data that the last validation left out."""
    records = read_events(run)
    counted = [record["samples"] for record in records if record["kind"] == "eval"]
    there = [record["val_samples"] for record in records if record["kind"] == "start"]
    return int(there[-1] - counted[-1]) if counted and there else 0


def final_step(run: Path) -> int:
    """The last step that a run reached; 0 where it has none."""
    if not (run / "events.jsonl").exists():
        return 0
    return max((record["step"] for record in read_events(run) if record["kind"] in ("step", "end")), default=0)


def weights(run: Path) -> str:
    """A digest of all that was learnt."""
    learnt = _learnt(run)
    return hashlib.sha256(b"".join(learnt[name].numpy().tobytes() for name in sorted(learnt))).hexdigest()[:16]


def distance(run: Path, other: Path) -> float:
    """How far two runs' weights are apart, relative to their norm."""
    mine, theirs = (
        torch.cat([learnt[name].double().flatten() for name in sorted(learnt)]) for learnt in map(_learnt, (run, other))
    )
    return float((mine - theirs).norm() / theirs.norm())


def _learnt(run: Path) -> dict[str, Tensor]:
    """Without batch norm's statistics: each worker has its own, and those of a lost worker are lost."""
    saved = checkpoint.load_newest(run / "checkpoints")[0].tensors["model"]
    return {name: value for name, value in saved.items() if "running" not in name and "num_batches" not in name}
