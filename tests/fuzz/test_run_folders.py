"""Attacks on the files of a run's folder: configuration, events, summary, records of jobs, checkpoints."""

import contextlib
import functools
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import example
from hypothesis import strategies as st

from phalanx.api.history import read_history
from phalanx.commands.loading import load_trained
from phalanx.config.resolve import resolve
from phalanx.launch.launchers.submitted import submitted_job
from phalanx.launch.record import load_record
from phalanx.launch.run_files import saved_checkpoint, verify_step
from phalanx.observe.curve_groups import recipe_of
from phalanx.observe.curves import read_run
from phalanx.observe.results import read_results
from phalanx.runs import checkpoint
from phalanx.runs.evaluations import EvaluatorResults, evaluations
from phalanx.runs.events import read_events
from phalanx.runs.folder import RunFolder, find_run
from phalanx.runs.folds_file import read_folds
from phalanx.runs.resume import choose
from phalanx.runs.rewind import find_step
from tests.fuzz import repair
from tests.fuzz.budget import fuzz
from tests.fuzz.guard import guarded
from tests.fuzz.mutate import damaged, wrong
from tests.observe.made_runs import make_run

STEP = "checkpoints/step-00000010"
DEEP = "a hundred thousand lists in one another"  # too deep to be shown in a message
Files = dict[str, bytes]


@functools.cache
def run_files() -> Files:
    """A small run, with a checkpoint of one tensor."""
    with tempfile.TemporaryDirectory() as top:
        run = make_run(Path(top) / "run", epochs=1)
        (run / "events-evaluator.jsonl").write_bytes((run / "events.jsonl").read_bytes().splitlines(True)[-1])
        (run / "summary.json").write_text(json.dumps(SUMMARY))
        (run / "job.json").write_text(json.dumps(JOB))
        (run / "folds.json").write_text(json.dumps({"folds": [], "runs": ["fold-1"]}))
        tensors = {"model": {"fc.weight": torch.zeros(3, 4)}, "optimizer": {"fc.weight/momentum": torch.ones(3, 4)}}
        checkpoint.save(run / "checkpoints", 10, tensors, STATE)
        checkpoint.mark_best(run / "checkpoints", 10, 0.5)
        return {str(path.relative_to(run)): path.read_bytes() for path in sorted(run.rglob("*")) if path.is_file()}


SUMMARY = {
    **{"finished": True, "best": {"top1": 0.5, "topk": 0.9, "step": 10, "metrics": {}}, "last": {"top1": 0.5}},
    **{"k": 5, "model": "m", "workers": 1, "steps": 10, "epochs": 1.0, "samples_per_s": 10.0, "wall_s": 1.0},
    "decisions": {"precision": "fp32 (no AMX)"},
}
JOB = {"state": "ended", "host": "h", "pid": 1, "pid_start": None, "run": "run", "roles": []}
IDENTITY = {"model": "m", "classes": ["a", "b"], "channels": 1, "image_size": 8, "mean": [0.5], "std": [0.5]}
STATE: dict[str, Any] = {
    **{"identity": IDENTITY, "training": {"step": 10, "best": None}, "samples_per_step": 10, "events": []},
    **{"config": {"name": "made", "model": {"name": "wrn10_1"}}, "optimizer": {}},
}


@contextlib.contextmanager
def written(files: Files) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as top:
        for name, content in files.items():
            path = Path(top) / "run" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        yield Path(top) / "run"


def read_everything(files: Files) -> None:
    """What `status`, `plot`, `compare`, `--resume` and `load` read of a run."""
    with written(files) as run:
        for read in (
            lambda: read_results([run]),
            lambda: resolve([RunFolder(run).layer()]),
            lambda: choose(run, "50%"),
            lambda: recipe_of(run),
            lambda: read_run(run, "run"),
            lambda: evaluations(read_events(run)),
            lambda: read_history(run, "val/top1"),
            lambda: read_history(run, "val/recall"),
            lambda: EvaluatorResults(run, lambda event: None).poll(),
            lambda: load_record(run),
            lambda: submitted_job(run),
            lambda: read_folds(run),
            lambda: find_run(run),
        ):
            with guarded():
                read()


def read_checkpoint(files: Files) -> None:
    with written(files) as run:
        for read in (
            lambda: checkpoint.load(checkpoint.find(run)),
            lambda: checkpoint.load_newest(run / checkpoint.FOLDER),
            lambda: checkpoint.best_path(run / checkpoint.FOLDER),
            lambda: find_step(run / checkpoint.FOLDER, 11),
            lambda: saved_checkpoint(run, None),
            lambda: verify_step(run, 10),
        ):
            with guarded():
                read()


def test_valid_runs_are_read() -> None:
    with written(run_files()) as run:
        assert read_results([run])[0].best_top1 == 0.5
        assert checkpoint.load(checkpoint.find(run)).tensors["model"]["fc.weight"].shape == (3, 4)


OF_RUN = ["config.yaml", "events.jsonl", "events-evaluator.jsonl", "summary.json", "job.json", "folds.json"]
OF_CHECKPOINT = [f"{STEP}/{name}" for name in ("state.json", "manifest.json", "model.safetensors")]
OF_CHECKPOINT += ["checkpoints/best.json"]


@pytest.mark.parametrize("victim", OF_RUN)
@fuzz(examples=15, data=st.data())
def test_damaged_files_of_a_run(victim: str, data: st.DataObject) -> None:
    files = run_files()
    read_everything({**files, victim: data.draw(damaged([files[victim], files["config.yaml"]]))})


@fuzz(examples=25, data=st.data())
def test_events_with_wrong_values(data: st.DataObject) -> None:
    files = run_files()
    records = [json.loads(line) for line in files["events.jsonl"].splitlines()]
    chosen = data.draw(st.lists(st.sampled_from(records).flatmap(wrong), min_size=1, max_size=6))
    resume = {"t": 1.0, "kind": "resume", "step": 5, "saved_step": 5, "checkpoint": "x", "warnings": []}
    lines = [records[0], *chosen, data.draw(wrong(resume)), *chosen]
    content = "".join(json.dumps(line) + "\n" for line in lines)
    read_everything({**files, "events.jsonl": content.encode(), "events-evaluator.jsonl": content.encode()})


@fuzz(examples=15, summary=wrong(SUMMARY), job=wrong(JOB), folds=wrong({"folds": [], "runs": []}))
@example(summary=DEEP, job=DEEP, folds=DEEP)
def test_json_with_wrong_values(summary: Any, job: Any, folds: Any) -> None:
    files = {**run_files(), "events.jsonl": b"\n", "submitted.json": _json(job)}
    read_everything({**files, "summary.json": _json(summary), "job.json": _json(job), "folds.json": _json(folds)})


def _json(value: Any) -> bytes:
    return b"[" * 100_000 + b"]" * 100_000 if value == DEEP else json.dumps(value).encode()


@pytest.mark.parametrize("victim", OF_CHECKPOINT)
@fuzz(examples=15, data=st.data())
def test_damaged_files_of_a_checkpoint(victim: str, data: st.DataObject) -> None:
    files = run_files()
    changed = {**files, victim: data.draw(damaged([files[victim]]))}
    if data.draw(st.booleans()):  # by somebody who makes the digests right, too
        inside = {Path(name).name: changed[name] for name in changed if name.startswith(STEP)}
        repair.checkpoint(inside)
        changed[f"{STEP}/manifest.json"] = inside["manifest.json"]
    read_checkpoint(changed)


@fuzz(examples=25, state=wrong({"format": 1, **STATE}), manifest=st.booleans())
@example(state=DEEP, manifest=True)
@example(state=[], manifest=True)
def test_a_state_with_wrong_values(state: Any, manifest: bool) -> None:
    inside = {Path(name).name: content for name, content in run_files().items() if name.startswith(STEP)}
    inside["state.json"] = _json(state)
    if manifest:
        repair.checkpoint(inside)
    files = {**run_files(), **{f"{STEP}/{name}": content for name, content in inside.items()}}
    read_checkpoint(files)
    with written(files) as run, guarded():
        load_trained(run, {})


HEADER = {"a": {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]}, "__metadata__": {"format": "pt"}}


@fuzz(examples=25, header=wrong(HEADER), length=st.none() | st.sampled_from([0, 1, 1 << 40, (1 << 64) - 1]))
def test_safetensors_with_wrong_headers(header: Any, length: int | None) -> None:
    text = _json(header)
    content = (len(text) if length is None else length).to_bytes(8, "little") + text + bytes(16)
    inside = {Path(name).name: content for name, content in run_files().items() if name.startswith(STEP)}
    inside["model.safetensors"] = content
    repair.checkpoint(inside)
    read_checkpoint({**run_files(), **{f"{STEP}/{name}": content for name, content in inside.items()}})


@fuzz(examples=15, manifest=wrong({"state.json": {"bytes": 1, "sha256": "x"}, "../../config.yaml": {"bytes": 1}}))
def test_a_manifest_with_wrong_values(manifest: Any) -> None:
    read_checkpoint({**run_files(), f"{STEP}/manifest.json": _json(manifest)})
