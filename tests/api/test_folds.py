"""Cross-validation as a user runs it: every image validated once, interrupted and resumed, and one table at the end."""

import csv
import json
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np
import pytest
import torch

import phalanx
from phalanx.api.folds import cross_validate
from phalanx.api.request import make_request
from phalanx.config.schema import DataConfig
from phalanx.data.sources.open import open_data
from phalanx.errors import UserError
from phalanx.roles.result import Result
from phalanx.runs import checkpoint
from phalanx.runs.events import read_events
from tests.api.test_train import SMALL, interrupting

SHORT: dict[str, Any] = SMALL | {"train.length": "16st", "train.log_every": 4}


@pytest.fixture(scope="module")
def folds(tmp_path_factory: pytest.TempPathFactory) -> phalanx.CrossValidation:
    """Three folds; the second was interrupted, and the rest trained later."""
    out = tmp_path_factory.mktemp("folds") / "run"
    with interrupting(out / "fold-2"):
        found = phalanx.train("digits", folds=3, settings=SHORT, out=out)
    assert isinstance(found, phalanx.CrossValidation)
    assert not found.finished
    assert [run.finished for run in found.runs] == [True, False]
    with pytest.raises(phalanx.Error, match="has no mean yet"):
        _ = found.mean
    first = (out / "fold-1" / "events.jsonl").read_bytes()
    resumed = found.resume()
    assert isinstance(resumed, phalanx.CrossValidation)
    assert (out / "fold-1" / "events.jsonl").read_bytes() == first, "a fold that is done is kept"
    assert any(record["kind"] == "resume" for record in read_events(out / "fold-2"))
    return resumed


def weights(run: phalanx.Run) -> dict[str, torch.Tensor]:
    return checkpoint.load(checkpoint.find(run.path, prefer_best=False)).tensors["model"]


def test_every_image_is_predicted_once_by_a_model_that_has_not_seen_it(folds: phalanx.CrossValidation) -> None:
    assert folds.finished
    with (folds.path / "predictions.tsv").open() as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    whole = open_data(DataConfig(source="digits"), threads=0).train
    assert sorted(row["sample"] for row in rows) == sorted(whole.name(i) for i in range(len(whole)))
    labels = {whole.name(i): whole.classes[label] for i, label in enumerate(whole.labels.tolist())}
    assert all(labels[row["sample"]] == row["class"] for row in rows)
    assert folds.pooled["top1"] == pytest.approx(np.mean([row["class"] == row["prediction"] for row in rows]))
    assert sum(one["samples"] for one in folds.pooled["classes"]) == folds.pooled["samples"] == 1442
    for number, run in enumerate(folds.runs, 1):
        seen = open_data(run.config.data, threads=0).val
        assert {seen.name(i) for i in range(len(seen))} == {row["sample"] for row in rows if row["fold"] == str(number)}


def test_the_table_has_what_each_fold_measured(folds: phalanx.CrossValidation) -> None:
    report = json.loads((folds.path / "folds.json").read_text())
    for row, run in zip(report["folds"], folds.runs, strict=True):
        assert (row["top1"], row["topk"], row["step"]) == (run.best.top1, run.best.topk, run.best.step)
        assert row["loss"] == pytest.approx(run.best.loss)
        assert row["last_top1"] == run.last.top1
    values = [row["top1"] for row in report["folds"]]
    assert folds.mean["top1"] == fmean(values) == folds.best.top1
    assert folds.std["top1"] == stdev(values)
    lines = (folds.path / "folds.tsv").read_text().splitlines()
    assert [line.split("\t")[0] for line in lines] == ["fold", "1", "2", "3", "mean"]
    assert lines[0].split("\t")[1:3] == ["top-1", "top-3"]
    assert " ± " in lines[-1]
    assert (folds.path / "confusion.png").stat().st_size > 0
    assert f"{100 * folds.pooled['top1']:.2f} %" in repr(folds)


def test_the_data_s_own_validation_part_is_a_test_set(folds: phalanx.CrossValidation) -> None:
    found = folds.runs[0].evaluate("digits")
    assert found.samples == 355
    assert found.top1 == json.loads((folds.path / "folds.json").read_text())["folds"][0]["test_top1"]


@pytest.mark.numeric
def test_a_fold_alone_is_the_same_run(folds: phalanx.CrossValidation, tmp_path: Path) -> None:
    alone = phalanx.train("digits", settings=SHORT | {"data.folds": 3, "data.fold": 2}, out=tmp_path / "alone")
    one, other = weights(alone), weights(folds.runs[1])
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_commands_understand_a_fold_and_name_it_for_the_whole(folds: phalanx.CrossValidation) -> None:
    assert phalanx.load(folds.path) == folds
    assert phalanx.load(folds.path / "fold-3").finished
    assert len(folds.figure().axes) > 1
    steps, values = folds.history("train/loss")
    assert steps == [4, 8, 12, 16]
    assert values[0] == pytest.approx(fmean(run.history("train/loss").values[0] for run in folds.runs))
    with pytest.raises(phalanx.Error, match="model for each fold") as caught:
        folds.predict(torch.zeros(8, 8))
    assert ".runs[0].predict()" in caught.value.remedy
    for refused in (lambda: checkpoint.find(folds.path), lambda: read_events(folds.path)):
        with pytest.raises(UserError, match="is a cross-validation, not one run") as error:
            refused()
        assert "fold-1" in error.value.remedy


def test_folds_trained_one_by_one_make_the_same_table(folds: phalanx.CrossValidation, tmp_path: Path) -> None:
    for run in folds.runs:
        (tmp_path / run.path.name).symlink_to(run.path)
    made = phalanx.train(resume=tmp_path)
    assert isinstance(made, phalanx.CrossValidation)
    assert (made.mean, made.std, made.pooled) == (folds.mean, folds.std, folds.pooled)


def test_what_would_make_folds_differ_is_refused(folds: phalanx.CrossValidation) -> None:
    with pytest.raises(phalanx.Error, match=r"train.length=2ep cannot change a cross-validation that has begun"):
        folds.resume(epochs=2)
    with pytest.raises(phalanx.Error, match=r"data\.fold does not go together") as caught:
        folds.resume(settings={"data.fold": 2})
    assert "fold-2" in caught.value.remedy
    with pytest.raises(phalanx.Error, match="no place to go back to"):
        folds.resume(at="1ep")
    with pytest.raises(phalanx.Error, match="holds a cross-validation already"):
        phalanx.train("digits", folds=3, settings=SHORT, out=folds.path)


def test_launchers_run_one_fold() -> None:
    from phalanx.api.launch_options import LaunchOptions, start_launch
    from phalanx.api.session import make_console

    request = make_request("digits", ["data.folds=4"], {"workers": 2})
    with pytest.raises(UserError, match="phalanx launch runs one fold at a time") as caught:
        start_launch(request, LaunchOptions(), make_console(False))
    assert "data.folds=4 data.fold=1 --out RUN/fold-1" in caught.value.remedy
    assert "phalanx train --workers 2 --folds 4" in caught.value.remedy


def test_a_refused_first_fold_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(phalanx.Error, match="cannot be divided into 5000 folds"):
        phalanx.train("digits", folds=5000, settings=SHORT, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_fold_that_stops_ends_the_job_with_its_code(tmp_path: Path) -> None:
    asked = []

    def start(request: Any, folder: Any, console: Any) -> Result:
        asked.append((request.config.data.fold, request.out))
        return Result(143, request.out)

    request = make_request("digits", ["data.folds=3"], {}, out=tmp_path / "run")
    assert cross_validate(request, start, None) == Result(143, tmp_path / "run")
    assert asked == [(1, tmp_path / "run" / "fold-1")]
    again = make_request(None, ["exchange.workers=2"], {}, resume=str(tmp_path / "run"))
    assert (again.config.data.folds, again.config.train.global_batch_size) == (3, 64)
    assert cross_validate(again, start, None).exit_code == 143
