"""`phalanx eval --attack` counts what torchattacks counts, and tells it in tables, JSON and a picture."""

import io
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import torchattacks
from PIL import Image
from rich.console import Console
from torch import Tensor, nn

import phalanx
from phalanx.commands.attack_report import Robustness, in_words
from phalanx.commands.evaluate_attack import attack_config, measure_attack
from phalanx.commands.loading import load_trained
from phalanx.config.adversarial_schema import AttackConfig
from phalanx.data.augment.framing import still_framing
from phalanx.data.sources.open import open_data
from phalanx.errors import UserError

PLAIN = {"device": "cpu", "fast_path": "off"}


def attacked(run: Path, out: Path, config: AttackConfig, restarts: int = 1) -> Robustness:
    return measure_attack(Console(file=io.StringIO()), run, config, restarts, None, 128, "cpu", None, out)


class OfPixels(nn.Module):
    """The model as others attack it: of pixels from 0 to 1."""

    def __init__(self, model: nn.Module, mean: float, std: float) -> None:
        super().__init__()
        self.model, self.mean, self.std = model, mean, std

    def forward(self, pixels: Tensor) -> Tensor:
        answer: Tensor = self.model((pixels - self.mean) / self.std)
        return answer


@pytest.mark.parametrize(
    ("attack", "norm", "eps"), [("pgd", "linf", 0.02), ("pgd", "l2", 0.25), ("fgsm", "linf", 0.02)]
)
def test_torchattacks_finds_the_same_accuracy(
    digits_run: Path, tmp_path: Path, attack: str, norm: str, eps: float
) -> None:
    """Without random starts both walk the same way. Another program's model of ours: plain layers, pixels."""
    values = {"attack": attack, "norm": norm, "eps": eps, "random_start": False}
    config = AttackConfig.model_validate(values | ({"steps": 10} if attack == "pgd" else {}))
    ours = attacked(digits_run, tmp_path, config)
    trained = load_trained(digits_run, PLAIN)
    val = open_data(trained.config.data, threads=1).val
    framing = still_framing(trained.config.data, trained.spec.image_size, trained.spec.margin)
    read = val.read(np.arange(len(val)), framing, 0, replace_bad=False)
    pixels, labels = torch.from_numpy(read.images).permute(0, 3, 1, 2).float() / 255, torch.from_numpy(read.labels)
    model = OfPixels(trained.model, trained.spec.mean[0], trained.spec.std[0]).eval()
    theirs = {
        "pgd linf": lambda: torchattacks.PGD(model, eps=eps, alpha=eps / 4, steps=10, random_start=False),
        "pgd l2": lambda: torchattacks.PGDL2(model, eps=eps, alpha=eps / 4, steps=10, random_start=False),
        "fgsm linf": lambda: torchattacks.FGSM(model, eps=eps),
    }[f"{attack} {norm}"]()
    changed = theirs(pixels, labels)
    with torch.no_grad():
        right, still = (model(each).argmax(1) == labels for each in (pixels, changed))
    robust = float((right & still).float().mean())
    assert ours.top1 == pytest.approx(float(right.float().mean()), abs=1e-6)
    assert 0.1 < robust < ours.top1 - 0.1  # an attack, and not the end of the model
    assert abs(ours.robust_top1 - robust) <= 0.003


@pytest.fixture(scope="module")
def printed(digits_run: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    out = tmp_path_factory.mktemp("attack")
    words = ["--attack", "pgd", "--eps", "5/255", "--steps", "5", "--restarts", "2", "--out", str(out)]
    command = [sys.executable, "-m", "phalanx", "eval", str(digits_run), *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout, out


def test_the_command_prints_and_writes_clean_and_robust_accuracy(printed: tuple[str, Path], digits_run: Path) -> None:
    said, out = printed
    found = json.loads((out / "eval.json").read_text())
    best = json.loads((digits_run / "summary.json").read_text())["best"]
    assert found["top1"] == best["top1"]
    assert found["samples"] == 355 == sum(one["samples"] for one in found["classes"])
    for share, count in (("top1", "correct"), ("robust_top1", "robust")):
        assert sum(one[count] for one in found["classes"]) == round(found[share] * 355)
    assert 0 < found["robust_top1"] < found["top1"]
    assert (found["attack"]["steps"], found["attack"]["restarts"]) == (5, 2)
    assert f"robust top-1: {100 * found['robust_top1']:.2f} %" in said
    assert "attack: pgd, linf 5/255, 5 steps of 0.004902, 2 restarts" in said
    lines = (out / "per_class.tsv").read_text().splitlines()
    assert lines[0].split("\t") == ["class", "samples", "correct", "top-1", "robust", "robust top-1"]
    assert all(line in said for line in lines)
    with Image.open(out / "attack.png") as picture:
        assert min(picture.size) > 700


def test_restarts_only_lower_it_and_python_finds_the_same(
    printed: tuple[str, Path], digits_run: Path, tmp_path: Path
) -> None:
    once = phalanx.load(digits_run).attack(eps="5/255", steps=5, out=tmp_path, device="cpu", progress=False)
    told = json.loads((printed[1] / "eval.json").read_text())
    assert told["robust_top1"] <= once.robust_top1
    twice = phalanx.load(digits_run).attack(
        eps=5 / 255, steps=5, restarts=2, out=tmp_path, device="cpu", progress=False
    )
    assert twice.robust_top1 == told["robust_top1"]
    assert [one.robust for one in twice.classes] == [one["robust"] for one in told["classes"]]


def test_targeted_attacks_tell_how_often_they_reach_their_class(digits_run: Path, tmp_path: Path) -> None:
    config = attack_config("pgd", norm=None, eps="0.2", step=None, steps=8, targeted=True)
    found = attacked(digits_run, tmp_path, config)
    assert found.target_reached is not None
    assert 0.3 < found.target_reached <= 1 - found.robust_top1
    assert found.attack.endswith("8 steps of 0.05, targeted")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("--attack pgd --eps 8", "eps 8 is more than the whole range of a pixel (0 to 1); try 8/255"),
        ("--attack pgd --eps much", "eps cannot be 'much'"),
        ("--attack best", "attack cannot be 'best'"),
        ("--attack none", "attack cannot be 'none'"),
        ("--attack fgsm --steps 4", "fgsm has one step"),
        ("--eps 8/255", "--eps has no effect here"),
        ("--targeted", "--targeted has no effect here"),
    ],
)
def test_wrong_words_are_explained(digits_run: Path, words: str, expected: str) -> None:
    from phalanx.cli.main import app

    with pytest.raises(UserError) as caught:
        app(["eval", str(digits_run), *words.split()], standalone_mode=False)
    assert expected in caught.value.what


def test_an_attack_in_words() -> None:
    assert in_words(attack_config("fgsm", norm=None, eps=None, step=None, steps=None, targeted=False), 1) == (
        "fgsm, linf 8/255, 1 step of 10/255"
    )
    assert in_words(attack_config("pgd", norm="l2", eps=0.5, step=0.1, steps=None, targeted=False), 3) == (
        "pgd, l2 0.5, 20 steps of 0.1, 3 restarts"
    )
