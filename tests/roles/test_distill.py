"""Whole runs that learn from a teacher: better than without, exact after a resume, and refused with another teacher."""

import shutil
from pathlib import Path

import pytest
import torch
import yaml

from phalanx.commands.loading import load_trained
from phalanx.errors import UserError
from phalanx.runs import checkpoint
from phalanx.runs.events import read_events
from tests.conftest import LEAN
from tests.roles.test_trainer import train

# Momentum, batch norm, dropout, mixing, EMA, checkpoints in mid-epoch, an epoch that the batch size does not divide.
STUDENT = (
    *("model.name=wrn10_1", "model.options={width: 1}", "model.drop=0.1", "augment.mixup=0.2", "augment.cutmix=1"),
    *("optim.ema=0.9", "train.batch_size=300", "checkpoint.every=3st", "eval.every=100%", "train.length=6st", *LEAN),
)


def tensors(run: Path) -> dict[str, dict[str, torch.Tensor]]:
    return checkpoint.load_newest(run / "checkpoints")[0].tensors


def equal(one: Path, other: Path) -> bool:
    mine, theirs = tensors(one), tensors(other)
    assert mine.keys() == theirs.keys()
    return all(torch.equal(mine[group][name], theirs[group][name]) for group in mine for name in mine[group])


def top1(run: Path) -> float:
    return float([record["top1"] for record in read_events(run) if record["kind"] == "eval"][-1])


METHODS = {
    "kl": ["distill.teachers=[{}]"],
    "feature": ["distill.teachers=[{}]", "distill.loss=feature", "distill.layers={{blocks.1: blocks.2}}"],
    "mutual": ["distill.loss=mutual"],
}


@pytest.mark.parametrize("name", METHODS)
def test_a_resumed_run_equals_an_undisturbed_one(digits_run: Path, tmp_path: Path, name: str) -> None:
    settings = [setting.format(digits_run) for setting in METHODS[name]]
    train(tmp_path / "whole", *STUDENT, *settings)
    train(tmp_path / "parts", *STUDENT, *settings)
    shutil.rmtree(checkpoint.path_of(tmp_path / "parts" / "checkpoints", 6))
    (tmp_path / "parts" / "checkpoints" / "best.json").unlink(missing_ok=True)
    train(tmp_path / "parts", resume=True)
    assert equal(tmp_path / "whole", tmp_path / "parts")


def test_what_is_trained_beside_the_model_stays_out_of_it(digits_run: Path, tmp_path: Path) -> None:
    for name in ("feature", "mutual"):
        settings = [setting.format(digits_run) for setting in METHODS[name]]
        said = train(tmp_path / name, *STUDENT, *settings, "train.length=3st", "optim.layer_decay=0.5")
        groups = tensors(tmp_path / name)
        assert groups["model"].keys() == groups["ema"].keys() == tensors(digits_run)["model"].keys()
        assert groups["distill"]
        assert "77,562 parameters" in said
        assert "over 5 depths" in said  # as without what hangs below the model
        assert not any("distill" in key for key in load_trained(tmp_path / name, {}).model.state_dict())


def test_a_student_learns_from_its_teacher_without_labels(digits_run: Path, tmp_path: Path) -> None:
    """alpha=1: labels count for nothing, so what the student knows, it knows from the teacher."""
    small = ("model.name=wrn10_1", "schedule.kind=constant", "train.batch_size=64", "optim.lr=0.05", "eval.every=100%")
    said = train(
        *(tmp_path / "student", *small, "train.length=2ep", *LEAN, "distill.alpha=1"),
        f"distill.teachers=[{digits_run}]",
    )
    assert top1(tmp_path / "student") > 0.3  # by chance it would be 0.1
    assert f"teacher: {digits_run}, top-1 " in said
    assert "kl T=4 alpha=1" in said


def test_the_teachers_digest_is_kept_and_another_one_refused(digits_run: Path, tmp_path: Path) -> None:
    teacher, out = tmp_path / "teacher", tmp_path / "run"
    shutil.copytree(digits_run, teacher)
    train(out, *STUDENT, f"distill.teachers=[{teacher}]", "train.length=3st")
    kept = yaml.safe_load((out / "config.yaml").read_text())["distill"]["digests"]
    assert list(kept) == [str(teacher)]
    assert len(kept[str(teacher)]) == 64
    moved = tmp_path / "moved"
    teacher.rename(moved)
    with pytest.raises(UserError, match="there is no teacher at"):
        train(out, "train.length=6st", resume=True)
    train(teacher, *STUDENT, "optim.ema=null", "train.length=1st", "train.seed=5")
    with pytest.raises(UserError, match="is not the one that this run has learned from"):
        train(out, "train.length=6st", resume=True)
    train(out, "train.length=6st", f"distill.teachers=[{moved}]", resume=True)


def test_several_teachers_count_by_their_weights(digits_run: Path, tmp_path: Path) -> None:
    """The same teacher twice is that teacher."""
    copy = tmp_path / "copy"
    shutil.copytree(digits_run, copy)
    plain = (*STUDENT, "train.length=2st")
    train(tmp_path / "one", *plain, f"distill.teachers=[{digits_run}]")
    pair = f"distill.teachers=[{digits_run}, {{name: {copy}, weight: 3}}]"
    said = train(tmp_path / "two", *plain, pair)
    assert "weight 0.25" in said
    assert "weight 0.75" in said
    one, two = tensors(tmp_path / "one")["model"], tensors(tmp_path / "two")["model"]
    for name in one:
        torch.testing.assert_close(one[name], two[name], rtol=1e-4, atol=1e-5)


def test_other_classes_and_layers_are_refused(digits_run: Path, tmp_path: Path) -> None:
    teacher = f"distill.teachers=[{digits_run}]"
    synthetic = (
        "data.source=synthetic",
        "data.synthetic={samples: 40, val_samples: 12, classes: 12, size: 16, channels: 1}",
    )
    with pytest.raises(UserError, match="does not know 2 of the 12 classes"):
        train(tmp_path / "run", *STUDENT, *synthetic, teacher)
    layers = ("distill.loss=feature", "distill.layers={layer9: blocks}")
    with pytest.raises(UserError, match="the student has no layer 'layer9'"):
        train(tmp_path / "run", *STUDENT, teacher, *layers)


def test_images_without_labels_are_learned_from_the_teacher_alone(digits_run: Path, tmp_path: Path) -> None:
    """The digits themselves serve as images without labels: those that are also validation images are left out."""
    settings = (
        *(*STUDENT, f"distill.teachers=[{digits_run}]", "distill.alpha=0.5", "distill.unlabeled=digits"),
        "distill.unlabeled_share=0.5",
    )
    said = train(tmp_path / "whole", *settings)
    assert "images without labels from digits" in said
    assert "50% of each micro-batch" in said
    train(tmp_path / "parts", *settings)
    shutil.rmtree(checkpoint.path_of(tmp_path / "parts" / "checkpoints", 6))
    (tmp_path / "parts" / "checkpoints" / "best.json").unlink(missing_ok=True)
    train(tmp_path / "parts", resume=True)
    assert equal(tmp_path / "whole", tmp_path / "parts")
