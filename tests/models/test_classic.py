"""The classic networks: published sizes, any image that they can see, and whole runs with them."""

import io
import shutil
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from rich.console import Console
from torch import nn

from phalanx.commands.export import export_checkpoint
from phalanx.config.recipes import load_recipe
from phalanx.config.resolve import parse_override, resolve
from phalanx.config.role import Role
from phalanx.config.schema import ModelConfig
from phalanx.errors import UserError
from phalanx.models.build import build_model
from phalanx.models.classic import CLASSICS
from phalanx.models.costs import count_cost
from phalanx.models.params import classifier_names
from phalanx.models.pplcnet import scale_of
from phalanx.roles.request import Request
from phalanx.roles.run import run
from phalanx.runs import checkpoint
from phalanx.runs.folder import RunFolder
from tests.conftest import LEAN

SMALLEST = {"alexnet": 63, "googlenet": 15, "squeezenet1_0": 21, "squeezenet1_1": 17, "lenet": 16}
SEEN = [
    (name, size, channels)
    for name in ("alexnet", "googlenet", "squeezenet1_0", "squeezenet1_1", "lenet")
    for size, channels in ((SMALLEST[name], 1), (SMALLEST[name] + 5, 3), (96, 1))
] + [
    (name, size, channels)
    for name in ("inception_bn", "inception_bn_small", "mlp", "PPLCNet_x0_25")
    for size, channels in ((8, 1), (28, 3), (33, 1))
]


def build(name: str, *, classes: int = 10, channels: int = 3, size: int = 224, **settings: Any) -> nn.Module:
    config = ModelConfig.model_validate({"name": name, **settings})
    return build_model(config, num_classes=classes, channels=channels, image_size=size)


def parameters(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize(
    ("name", "published"),
    [
        ("alexnet", 61_100_840),  # torchvision's table of weights
        ("googlenet", 6_624_904),  # the same, as it is evaluated: without auxiliary classifiers
        ("squeezenet1_0", 1_248_424),
        ("squeezenet1_1", 1_235_496),
        ("lenet", 431_080),  # Caffe's LeNet for MNIST
        ("mlp", 109_386),  # 784·128 + 128 + 128·64 + 64 + 64·10 + 10
    ],
)
def test_parameters_are_as_published(name: str, published: int) -> None:
    assert count_cost(name).params == published


def test_inception_bn_is_as_published() -> None:
    """11,295,240 in Caffe's model, which has biases before its norms; 1,649,402 in Zhang et al., whose norms have no
    scale."""
    for name, published, sign in (("inception_bn", 11_295_240, 1), ("inception_bn_small", 1_649_402, -1)):
        with torch.device("meta"):
            model = build(name, classes=CLASSICS[name].num_classes)
        outputs = sum(m.out_channels for m in model.modules() if isinstance(m, nn.Conv2d))
        assert parameters(model) + sign * outputs == published


@pytest.mark.parametrize("name", [name for name in CLASSICS if name.startswith("PPLCNet")])
def test_pplcnet_is_as_published(name: str) -> None:
    table = {0.25: 1.5, 0.35: 1.6, 0.5: 1.9, 0.75: 2.4, 1.0: 3.0, 1.5: 4.5, 2.0: 6.5, 2.5: 9.0}  # millions; the paper
    found = count_cost(name).params
    assert found is not None
    assert round(found / 1e6, 1) == table[scale_of(name)]
    theirs = f"lcnet_{round(100 * scale_of(name)):03d}"
    if timm.is_model(theirs):  # which has a bias before its last activation
        assert found == parameters(timm.create_model(theirs)) - 1280


@pytest.mark.parametrize(
    ("name", "macs"),
    [("alexnet", 0.71e9), ("googlenet", 1.50e9), ("squeezenet1_0", 0.82e9), ("PPLCNet_x1_0", 161e6), ("lenet", 2.3e6)],
)
def test_multiply_adds_are_as_published(name: str, macs: float) -> None:
    found = count_cost(name).macs
    assert found is not None
    assert found == pytest.approx(macs, rel=0.04)  # some count activations too


@pytest.mark.parametrize(("name", "size", "channels"), SEEN)
def test_forward_and_backward(name: str, size: int, channels: int) -> None:
    torch.manual_seed(0)
    model = build(name, classes=7, channels=channels, size=size)
    scores = model(torch.randn(2, channels, size, size))
    assert scores.shape == (2, 7)
    scores.square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())
    fc = classifier_names(model)
    assert {model.state_dict()[each].shape[0] for each in fc} == {7}


@pytest.mark.parametrize(("name", "smallest"), SMALLEST.items())
def test_an_image_too_small_is_refused_with_the_size_that_works(name: str, smallest: int) -> None:
    with pytest.raises(UserError, match="cannot take images of 8 pixels") as raised:
        build(name, size=8)
    assert f"data.image_size={smallest} " in raised.value.remedy
    build(name, size=smallest)
    with pytest.raises(UserError):
        build(name, size=smallest - 1)


def test_trying_a_size_does_not_disturb_the_random_state() -> None:
    torch.manual_seed(3)
    ours = build("lenet", channels=1, size=28)
    torch.manual_seed(3)
    again = CLASSICS["lenet"].build(num_classes=10, channels=1, image_size=28)
    assert all(torch.equal(a, b) for a, b in zip(ours.parameters(), again.parameters(), strict=True))


@pytest.mark.parametrize("name", ["lenet", "mlp", "inception_bn_small", "PPLCNet_x0_25", "squeezenet1_1", "googlenet"])
def test_dropout_is_set_by_model_drop(name: str) -> None:
    torch.manual_seed(0)
    images = torch.randn(2, 3, 28, 28)
    dropped = build(name, size=28, drop=0.5)
    assert not torch.equal(dropped(images), dropped(images))
    without = build(name, size=28, drop=0.0)
    assert torch.equal(without(images), without(images))


def test_what_a_classic_lacks_is_refused() -> None:
    for wish in ({"drop_path": 0.1}, {"options": {"width": 2}}, {"pretrained": True}):
        for name in ("alexnet", "lenet"):
            with pytest.raises(UserError, match="model"):
                build(name, size=64, **wish)


RUNS = {
    "alexnet": 63,
    "googlenet": 32,
    "inception_bn": 32,
    "inception_bn_small": 16,
    "lenet": 16,
    "mlp": 16,
    "squeezenet1_1": 32,
    "PPLCNet_x0_25": 32,
}


def train(request: Request) -> None:
    assert run(request, Role(), Console(file=io.StringIO(), width=200)).exit_code == 0


@pytest.mark.parametrize(("name", "size"), RUNS.items())
def test_it_trains_resumes_exactly_and_is_exported(name: str, size: int, tmp_path: Path) -> None:
    words = [
        f"model.name={name}",
        f"data.image_size={size}",
        "data.val_share=0.02",
        "train.batch_size=8",
        "train.length=4st",
        "checkpoint.every=2st",
        "eval.every=4st",
        "machine.precision=fp32",
        *LEAN,
    ]
    whole, parted = tmp_path / "whole", tmp_path / "parted"
    train(Request(resolve([*load_recipe("digits").layers, *map(parse_override, words)]), "test", out=whole))
    shutil.copytree(whole, parted, symlinks=True)
    shutil.rmtree(parted / "checkpoints" / "step-00000004")
    folder = RunFolder(parted)
    train(Request(resolve([folder.layer()]), "test", resume=folder))
    before = checkpoint.load_newest(whole / "checkpoints")[0].tensors
    after = checkpoint.load_newest(parted / "checkpoints")[0].tensors
    for group, tensors in before.items():
        assert all(torch.equal(tensor, after[group][key]) for key, tensor in tensors.items()), group

    if name != "alexnet":  # a quarter of a gigabyte, and nothing new
        export_checkpoint(Console(file=io.StringIO()), checkpoint.find(whole), tmp_path / "export", [])
        assert (tmp_path / "export" / "model.pt2").exists()
