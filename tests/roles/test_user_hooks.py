"""Metrics, callbacks, transforms, datasets and samplings of the user's own, in real jobs."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import phalanx as phalanx_api
from phalanx.runs.events import read_events
from tests.conftest import LEAN

CODE = '''
import torch

from phalanx.data.sources.embedded import open_digits


class Digits:
    """The built-in digits as a dataset of one's own."""

    def __init__(self, split):
        self.source = open_digits(split, channels=None)
        self.classes, self.targets = self.source.classes, self.source.labels

    def __len__(self):
        return len(self.source)

    def __getitem__(self, index):
        return self.source.images[self.source.rows[index]], self.targets[index]


def speckle(image, generator):
    return image ^ (torch.rand(image.shape, generator=generator) < 0.05).to(torch.uint8)


class Recall:
    def __init__(self, num_classes):
        self.num_classes = num_classes

    def sums(self, logits, labels):
        hits = logits.argmax(1) == labels
        return {"correct": torch.bincount(labels[hits], minlength=self.num_classes),
                "samples": torch.bincount(labels, minlength=self.num_classes)}

    def result(self, sums):
        recall = sums["correct"] / sums["samples"].clamp(min=1)
        return {"mean_recall": recall.mean(), "worst_recall": recall.min()}


class Patience:
    """Ends training after so many evaluations, which it counts over a resume."""

    def __init__(self, evaluations):
        self.evaluations, self.seen, self.calls = evaluations, 0, []

    def on_start(self, run):
        self.calls.append("start")

    def on_step(self, run, numbers):
        self.calls.append("step")

    def on_epoch(self, run, numbers):
        return {"epoch_loss": numbers["loss"], "rank": run.rank}

    def on_evaluated(self, run, numbers):
        self.seen += 1
        if self.seen == self.evaluations:
            run.stop(f"seen {self.seen} evaluations, worst recall {numbers['worst_recall']:.3f}")

    def on_saved(self, run, path):
        assert path.is_dir()
        return f"saved {path.name}"

    def on_end(self, run):
        (run.folder / "calls.txt").write_text(" ".join([*self.calls, "end"]))

    def state(self):
        return {"seen": self.seen}

    def load(self, state):
        self.seen = state["seen"]


def broken(logits, labels):
    return labels.no_such_thing
'''
RUN = (
    *("model.name=cifar_resnet8", "train.length=4ep", "train.global_batch_size=362", "schedule.kind=constant"),
    *("data.source=own.py:Digits", "data.sampling=balanced", "data.image_size=8", "augment.transform=own.py:speckle"),
    *("loss.class_weights=balanced", "optim.rates={'*': 0.5, fc: 1}", "eval.metrics=[own.py:Recall]"),
    *("eval.every=1ep", "checkpoint.every=1ep", *LEAN),
)
ACCUMULATED = ("optim.accumulate=2",)
STOP_AFTER_2 = "callbacks=[{name: own.py:Patience, options: {evaluations: 2}}]"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("project")
    (folder / "own.py").write_text(CODE)
    return folder


def phalanx(folder: Path, *words: str, ok: bool = True) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "phalanx", *words], cwd=folder, capture_output=True, text=True, timeout=240
    )
    assert (done.returncode == 0) == ok, done.stdout + done.stderr
    return done.stdout + done.stderr


def evaluations(run: Path) -> list[dict[str, Any]]:
    return [{k: r[k] for k in ("step", "top1", "loss", "metrics")} for r in read_events(run) if r["kind"] == "eval"]


def learned(run: Path) -> list[float]:
    return [record["loss"] for record in read_events(run) if record["kind"] == "epoch"]


@pytest.fixture(scope="module")
def alone(folder: Path) -> Path:
    """One worker with two micro-batches a step; an early end."""
    phalanx(folder, "train", "digits", "--out", "alone", *ACCUMULATED, *RUN, STOP_AFTER_2)
    return folder / "alone"


def test_everything_of_the_users_own_is_seen_in_the_run(alone: Path) -> None:
    records = read_events(alone)
    evals = [r for r in records if r["kind"] == "eval"]
    assert [r["step"] for r in evals] == [4, 8]
    assert all(0 <= r["metrics"]["worst_recall"] <= r["metrics"]["mean_recall"] <= 1 for r in evals)
    told = [r for r in records if r["kind"] == "callback"]
    assert [(r["step"], r["name"], r["method"]) for r in told] == [
        (4, "Patience", "on_epoch"),
        (8, "Patience", "on_epoch"),
    ]
    assert told[0]["values"]["rank"] == 0
    assert records[-1]["kind"] == "end"
    assert records[-1]["step"] == 9  # one step after the evaluation that asked for the end
    log = (alone / "log.txt").read_text()
    assert "training ends early at step 9: seen 2 evaluations" in log
    assert "worst_recall" in log
    assert "saved step-" in log
    summary = json.loads((alone / "summary.json").read_text())
    assert summary["finished"]
    assert summary["last"]["metrics"] == evals[-1]["metrics"]
    assert "mean_recall" in summary["best"]["metrics"]
    run = phalanx_api.load(alone)
    assert run.history("val/worst_recall") == ([4, 8], [found["metrics"]["worst_recall"] for found in evals])
    assert run.history("Patience/epoch_loss").steps == [4, 8]
    assert run.best.metrics == summary["best"]["metrics"]
    assert (alone / "calls.txt").read_text() == "start " + "step " * 9 + "end"


@pytest.mark.parametrize("method", ["collective", "pserver"])
def test_two_workers_measure_and_end_as_one_does(folder: Path, alone: Path, method: str) -> None:
    words = ("--workers", "2", "--update-method", method, "--data-servers", "1" if method == "collective" else "0")
    phalanx(folder, "train", "digits", "--out", method, *words, *RUN, STOP_AFTER_2)
    assert [found["step"] for found in evaluations(folder / method)] == [4, 8]
    assert read_events(folder / method)[-1]["step"] == 9
    # Validation differs a little: batch-norm statistics are each worker's own. Training does not.
    assert learned(folder / method) == pytest.approx(learned(alone), rel=1e-4)


def test_a_resumed_run_counts_on_and_evaluates_the_same(folder: Path, alone: Path) -> None:
    stop_after_3 = STOP_AFTER_2.replace("2", "3")
    words = ("--out", "cut", *ACCUMULATED, *RUN, stop_after_3, "train.length=5st")  # evaluates after steps 4 and 5
    phalanx(folder, "train", "digits", *words)
    phalanx(folder, "train", "--resume", "cut", "train.length=4ep")
    cut = {found["step"]: found for found in evaluations(folder / "cut")}
    assert list(cut) == [4, 5, 8]  # the third one, so it ended there
    assert cut[8] == evaluations(alone)[-1]


def test_phalanx_eval_reports_the_metrics(folder: Path, alone: Path) -> None:
    told = phalanx(folder, "eval", "alone")
    found = json.loads((alone / "eval" / "eval.json").read_text())["metrics"]
    best = json.loads((alone / "summary.json").read_text())["best"]["metrics"]
    assert found == best
    assert "worst_recall" in told


def test_an_error_in_a_metric_shows_its_line_and_leaves_the_run_resumable(folder: Path) -> None:
    told = phalanx(folder, "train", "digits", "--out", "broken", *RUN, "eval.metrics=[own.py:broken]", ok=False)
    assert "labels.no_such_thing" in told
    assert "AttributeError" in told
    assert "engine/metrics.py" not in told


def test_an_evaluator_reports_the_metrics(folder: Path) -> None:
    phalanx(folder, "train", "digits", "--out", "judged", "--evaluator", *RUN, "train.length=2ep")
    assert all("worst_recall" in e["metrics"] for e in evaluations(folder / "judged"))
    assert evaluations(folder / "judged")
