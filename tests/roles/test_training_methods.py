"""Early stopping, averaged weights and decayed rates in real jobs: the same for every update method, and resumed."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

import phalanx
from phalanx.data.augment.framing import eval_framing
from phalanx.data.order import Share
from phalanx.data.pipeline import shuffled_batches
from phalanx.data.sources.open import open_data
from phalanx.engine.inputs import Inputs
from phalanx.machine.settings import choose
from phalanx.runs import checkpoint
from phalanx.runs.events import read_events
from tests.api.test_train import SMALL

SHORT: dict[str, Any] = SMALL | {
    "train.global_batch_size": 240,  # seven steps an epoch
    "train.micro_batches": 2,
    "train.log_every": 7,
    "eval.every": "1ep",
    "checkpoint.every": "1ep",
    "checkpoint.keep_last": 9,
    "optim.lr": 0.1,
}
AVERAGED = SHORT | {
    "train.length": "5ep",
    "optim.swa.start": "3ep",
    "optim.swa.lr": 0.05,
    "machine.fast_path": "off",
}
# Nothing is learned, so no evaluation is better than the first.
STILL = SHORT | {"model.name": "mlp", "train.length": "20ep", "optim.lr": 1e-12, "train.patience": "2ep"}


def tensors(run: phalanx.Run, step: int | None = None) -> dict[str, dict[str, torch.Tensor]]:
    folder = run.path / "checkpoints"
    path = checkpoint.path_of(folder, step) if step else checkpoint.latest_path(folder)
    assert path is not None
    return checkpoint.load(path).tensors


@pytest.fixture(scope="module")
def averaged(tmp_path_factory: pytest.TempPathFactory) -> phalanx.Run:
    return phalanx.train("digits", settings=AVERAGED, out=tmp_path_factory.mktemp("swa") / "run")


def test_the_average_is_equal_over_the_chosen_steps(averaged: phalanx.Run) -> None:
    steps = [21, 28, 35]  # the ends of epochs 3, 4 and 5
    saved = [tensors(averaged, step) for step in steps]
    for name in saved[-1]["model"]:
        if "running" not in name and "num_batches" not in name:
            mean = torch.stack([each["model"][name] for each in saved]).mean(0)
            torch.testing.assert_close(saved[-1]["ema"][name], mean, rtol=1e-5, atol=1e-6)
    assert "ema" not in tensors(averaged, 14)
    assert averaged.history("train/lr").values[-1] == 0.05
    assert averaged.evaluate().top1 == averaged.best.top1


def test_its_norms_have_the_statistics_of_the_training_data(averaged: phalanx.Run) -> None:
    """Of the first norm: what it gets does not depend on other norms."""
    model, config = averaged.model(), averaged.config
    model.load_state_dict(tensors(averaged)["ema"])
    spec = checkpoint.load(checkpoint.find(averaged.path)).state["identity"]
    inputs = Inputs(choose(config.machine), config.augment, spec["mean"], spec["std"], 0)
    source = open_data(config.data, threads=0).train
    framing = eval_framing(config.data, spec["image_size"], source)
    (batch,) = shuffled_batches(source, framing, len(source), Share(0, 1), seed=0)
    with torch.no_grad():
        seen = model.get_submodule("stem")(inputs.plain(batch.micro[0])[0])
    norm = model.get_submodule("blocks.0.bn1")
    var, mean = torch.var_mean(seen.double(), (0, 2, 3))
    torch.testing.assert_close(norm.get_buffer("running_mean").double(), mean, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(norm.get_buffer("running_var").double(), var, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("flags", [{"workers": 2}, {"workers": 2, "update_method": "pserver", "servers": 2}], ids=str)
def test_workers_have_the_same_average(averaged: phalanx.Run, tmp_path: Path, flags: dict[str, Any]) -> None:
    run = phalanx.train("digits", settings=AVERAGED, out=tmp_path / "run", **flags)
    one, other = tensors(averaged)["ema"], tensors(run)["ema"]
    for name in one:
        if "num_batches" not in name:  # each worker counts its own micro-batches
            torch.testing.assert_close(other[name], one[name], rtol=2e-3, atol=2e-4)


@pytest.mark.numeric
def test_a_resumed_average_is_the_same(averaged: phalanx.Run, tmp_path: Path) -> None:
    shutil.copytree(averaged.path, tmp_path / "run")
    resumed = phalanx.train(resume=tmp_path / "run", at="4ep")
    one, other = tensors(averaged), tensors(resumed)
    assert all(torch.equal(one[part][name], other[part][name]) for part in ("model", "ema") for name in one[part])


def test_averages_that_cannot_be_are_refused(tmp_path: Path) -> None:
    with pytest.raises(phalanx.Error, match="one average is evaluated and kept"):
        phalanx.train("digits", settings=AVERAGED | {"optim.ema": 0.9}, out=tmp_path / "a")
    with pytest.raises(phalanx.Error, match="no common weights to average"):
        phalanx.train("digits", settings=AVERAGED, update_method="pserver", mode="async", out=tmp_path / "b")
    with pytest.raises(phalanx.Error, match="after the end of training"):
        phalanx.train("digits", settings=AVERAGED | {"optim.swa.start": "9ep"}, out=tmp_path / "c")


def notes(run: phalanx.Run) -> list[str]:
    return [record["text"] for record in read_events(run.path) if record["kind"] == "note"]


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> phalanx.Run:
    return phalanx.train("digits", settings=STILL, out=tmp_path_factory.mktemp("patience") / "run")


def test_patience_ends_a_run_as_finished(ended: phalanx.Run) -> None:
    assert ended.finished
    assert (ended.best.epoch, ended.last.epoch) == (1, 3)
    assert "validation is no better since step 7 (train.patience=2ep)" in notes(ended)[-1]


def test_patience_goes_on_counting_after_a_resume(ended: phalanx.Run, tmp_path: Path) -> None:
    shutil.copytree(ended.path, tmp_path / "run")
    resumed = phalanx.train(resume=tmp_path / "run", at="2ep")
    assert resumed.finished
    assert resumed.last.epoch == 3


@pytest.mark.parametrize(
    "flags",
    [
        {"workers": 2},
        {"workers": 2, "evaluator": True},
        {"workers": 2, "update_method": "pserver", "mode": "async"},
    ],
    ids=str,
)
def test_workers_end_together(tmp_path: Path, flags: dict[str, Any]) -> None:
    # An evaluator takes its time, in which training goes on.
    long = {"train.length": "3000ep", "eval.every": "20ep", "checkpoint.every": "20ep", "train.patience": "40ep"}
    settings = STILL | (long if "evaluator" in flags else {})
    run = phalanx.train("digits", settings=settings, out=tmp_path / "run", **flags)
    assert run.finished
    assert any("validation is no better" in text for text in notes(run))
    assert run.last.epoch < 3000 if "evaluator" in flags else run.last.epoch == 3


def test_rates_decay_with_the_depth_on_workers_and_servers(tmp_path: Path) -> None:
    base = SMALL | {"train.length": "1st", "optim.momentum": 0, "optim.weight_decay": 0, "schedule.kind": "constant"}
    base |= {"model.zero_init_last": False, "optim.lr": 0.1, "machine.fast_path": "off", "schedule.warmup": "0ep"}
    start = phalanx.train("digits", settings=base | {"optim.lr": 1e-20}, out=tmp_path / "start")
    plain = phalanx.train("digits", settings=base, out=tmp_path / "plain")
    decayed = phalanx.train("digits", settings=base | {"optim.layer_decay": 0.5}, out=tmp_path / "decayed")
    served = phalanx.train(
        "digits",
        settings=base | {"optim.layer_decay": 0.5},
        update_method="pserver",
        servers=2,
        out=tmp_path / "served",
    )
    before, full, part = (tensors(run)["model"] for run in (start, plain, decayed))
    for name, factor in (("fc.weight", 1.0), ("blocks.2.conv1.weight", 0.5), ("stem.0.weight", 0.5**4)):
        torch.testing.assert_close(
            part[name] - before[name], factor * (full[name] - before[name]), rtol=1e-3, atol=1e-6
        )
    assert all(torch.equal(tensor, part[name]) for name, tensor in tensors(served)["model"].items())
