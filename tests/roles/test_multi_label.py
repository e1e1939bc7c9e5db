"""A run on samples with several labels, from training with two workers to predictions: examples/several_labels."""

import io
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from rich.console import Console

import phalanx
from phalanx.commands.evaluate import evaluate_checkpoint
from phalanx.commands.export_formats import describe
from phalanx.commands.loading import load_trained
from phalanx.commands.predict import predict_images
from phalanx.config.resolve import resolve
from phalanx.errors import UserError
from phalanx.observe.curves import read_run
from phalanx.observe.plots import curves_figure
from phalanx.observe.results import read_results
from phalanx.roles.evaluator import make_evaluator
from phalanx.runs import checkpoint
from phalanx.runs.code import install_code
from phalanx.runs.events import EVENTS_FILE, read_events
from phalanx.runs.folder import RunFolder
from tests.conftest import LEAN, train_digits

EXAMPLE = Path(__file__).parents[2] / "examples" / "several_labels"


def phalanx_train(folder: Path, *words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "phalanx", "train", *words], cwd=folder, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The run of the example with two workers, and what it printed."""
    project = tmp_path_factory.mktemp("project") / "several_labels"
    shutil.copytree(EXAMPLE, project, ignore=shutil.ignore_patterns("runs", "__pycache__"))
    two = ("--workers", "2", "--update-method", "collective", "train.batch_size=16", "train.length=3ep")
    said = phalanx_train(project, "recipe.yaml", "--out", "runs/digits", *two, *LEAN)
    return project / "runs" / "digits", said


def evaluations(run: Path) -> list[dict[str, Any]]:
    found = [record for record in read_events(run) if record["kind"] == "eval"]
    return [{key: value for key, value in record.items() if key not in ("t", "seconds")} for record in found]


def test_it_learns_and_never_speaks_of_accuracy(trained: tuple[Path, str]) -> None:
    run, said = trained
    summary = json.loads((run / "summary.json").read_text())
    assert summary["best"]["metrics"]["mAP"] > 0.95
    assert (summary["best"]["metric"], summary["best"]["top1"]) == ("mAP", None)
    best = max(evaluations(run), key=lambda record: record["metrics"]["mAP"])
    assert best["step"] == summary["best"]["step"]
    assert json.loads((run / "checkpoints" / "best.json").read_text())["mAP"] == best["metrics"]["mAP"]
    text = said + (run / "log.txt").read_text()
    assert "top-1" not in text
    assert "the loss is binary cross-entropy (BCE), and mAP judges the run" in text
    assert f"mAP {100 * best['metrics']['mAP']:.2f} %" in text
    steps = [record for record in read_events(run) if record["kind"] == "step"]
    assert steps[-1]["metrics"]["f1_micro"] > steps[0]["metrics"]["f1_micro"]


def test_the_evaluator_measures_the_same_to_the_last_bit(trained: tuple[Path, str], tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(trained[0], run)
    lines = (run / EVENTS_FILE).read_text().splitlines(keepends=True)
    (run / EVENTS_FILE).write_text("".join(line for line in lines if json.loads(line)["kind"] != "eval"))
    config = resolve([RunFolder(run).layer()]).config
    install_code(run, config)
    evaluator = make_evaluator(config, RunFolder(run), Console(file=io.StringIO()), lambda: False)
    while evaluator.evaluate_next():
        pass
    kept = {record["step"] for record in evaluations(run)}
    by_workers = [record for record in evaluations(trained[0]) if record["step"] in kept]
    assert len(kept) == 2
    assert [one["metrics"] for one in evaluations(run)] == [one["metrics"] for one in by_workers]


def test_eval_reports_each_class(trained: tuple[Path, str], tmp_path: Path) -> None:
    said = io.StringIO()
    evaluate_checkpoint(Console(file=said), trained[0], None, None, "cpu", None, tmp_path)
    report = json.loads((tmp_path / "eval.json").read_text())
    best = json.loads((trained[0] / "summary.json").read_text())["best"]
    assert report["metrics"] == best["metrics"]
    assert np.mean([one["average_precision"] for one in report["classes"]]) == pytest.approx(best["metrics"]["mAP"])
    assert report["classes"][3]["precision"] > 0.8
    assert len((tmp_path / "per_class.tsv").read_text().splitlines()) == 11
    assert Image.open(tmp_path / "average_precision.png").width > 500
    assert f"mAP: {100 * best['metrics']['mAP']:.2f} %" in said.getvalue()
    assert "top-" not in said.getvalue()


def predicted(run: Path, image: Path, style: str, top_k: int | None = None, threshold: float | None = None) -> str:
    said = io.StringIO()
    assert predict_images(Console(file=said), run, [str(image)], top_k, style, "cpu", threshold) == 0
    return said.getvalue()


def test_predictions_are_all_labels_above_the_threshold(trained: tuple[Path, str], tmp_path: Path) -> None:
    from importlib.util import module_from_spec, spec_from_file_location

    spec = spec_from_file_location("digit_pictures", EXAMPLE / "digit_pictures.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    pictures = module.DigitPictures("val")
    right = 0
    run = phalanx.load(trained[0])
    for prediction, target in zip(run.predict(list(pictures.images[:40])), pictures.targets[:40], strict=True):
        assert prediction.labels == [name for name, value in prediction.classes if value > 0.5][:5]
        assert len(prediction.classes) == 5
        right += {int(name) for name in prediction.labels} == set(np.flatnonzero(target).tolist())
    assert right > 30
    Image.fromarray(np.zeros((16, 16), dtype=np.uint8)).save(tmp_path / "empty.png")
    assert json.loads(predicted(trained[0], tmp_path / "empty.png", "json"))["labels"] == []
    assert predicted(trained[0], tmp_path / "empty.png", "tsv").splitlines()[1].split("\t")[1] == "none"
    assert len(predicted(trained[0], tmp_path / "empty.png", "tsv", top_k=3).splitlines()) == 4
    assert len(predicted(trained[0], tmp_path / "empty.png", "tsv", threshold=0).splitlines()) == 11


def test_results_and_curves_speak_of_map(trained: tuple[Path, str], tmp_path: Path) -> None:
    run = phalanx.load(trained[0])
    assert run.best.mAP == max(run.history("val/mAP").values) == run.best.metrics["mAP"]
    assert np.isnan(run.best.top1)
    assert len(run.history("train/f1_micro").values) >= 2
    assert f"mAP {100 * run.best.mAP:.2f} %" in repr(run)
    (result,) = read_results([trained[0]])
    assert (result.best_map, result.best_top1) == (run.best.mAP, None)
    log = read_run(trained[0], "it")
    assert log.curve("val/mAP", "step").y == [100 * value for value in run.history("val/mAP").values]
    assert log.curve("val/top1", "step").y == []
    titles = [axes.get_title() for axes in curves_figure([trained[0]]).figure.axes]
    assert titles == ["mAP, %", "loss", "learning rate", "f1_micro", "f1_macro"]
    about = describe(load_trained(trained[0], {"device": "cpu"}))
    assert about["problem_type"] == "multi_label_classification"
    assert about["phalanx"]["mAP"] == run.best.mAP


SHORT = ("model.name=wrn10_1", "train.length=8st", "eval.every=4st", "checkpoint.every=4st", "data.multi_label=true")


def test_a_resumed_run_is_the_undisturbed_and_the_other_kind_is_refused(tmp_path: Path) -> None:
    whole = train_digits(tmp_path / "whole", *SHORT, *LEAN, "augment.mixup=0.2", "data.sampling=balanced")
    part = tmp_path / "part"
    shutil.copytree(whole, part)
    shutil.rmtree(checkpoint.path_of(part / "checkpoints", 8))
    phalanx.load(part).resume(settings={"train.length": "8st"}, progress=False)
    assert any(record["kind"] == "resume" and record["step"] == 4 for record in read_events(part))
    assert evaluations(part) == evaluations(whole)
    one, other = (checkpoint.load_newest(run / "checkpoints")[0].tensors["model"] for run in (whole, part))
    assert all(tensor.equal(other[name]) for name, tensor in one.items())
    with pytest.raises(UserError, match="was trained on several labels a sample") as error:
        phalanx.load(part).resume(settings={"data.multi_label": False}, epochs=1, progress=False)
    assert "data.multi_label=true" in error.value.remedy
