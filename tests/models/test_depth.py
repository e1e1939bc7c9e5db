"""Depths of parameters: the blocks of timm's models and of our own, from the image to the classifier."""

import pytest
import torch
from torch import nn

from phalanx.config.schema import ModelConfig
from phalanx.models.build import build_model
from phalanx.models.depth import decayed_rates, layer_depths
from phalanx.models.freeze import freeze


def build(name: str) -> nn.Module:
    return build_model(ModelConfig(name=name), num_classes=3, channels=3, image_size=32)


@pytest.mark.parametrize(
    ("name", "first", "middle", "last", "depths"),
    [
        ("resnet18", "bn1.bias", "layer1.0.bn2.weight", "fc.weight", 10),
        ("wrn10_1", "stem.0.weight", "blocks.0.bn1.weight", "fc.bias", 5),
        ("cifar_resnet20", "stem.0.weight", "blocks.0.conv1.weight", "fc.weight", 11),
        ("lenet", "body.0.weight", "body.3.bias", "fc.weight", 4),
    ],
)
def test_a_block_is_a_depth(name: str, first: str, middle: str, last: str, depths: int) -> None:
    found = layer_depths(build(name))
    assert (found[first], found[middle], found[last]) == (0, 1, depths - 1)
    assert set(found.values()) == set(range(depths))
    assert found.keys() == {parameter for parameter, _ in build(name).named_parameters()}


def test_rates_decay_towards_the_image_and_own_rates_multiply() -> None:
    rates = decayed_rates(build("resnet18"), 0.5, {"fc": 10.0, "conv1": 2.0})
    assert rates["fc.weight"] == 10.0
    assert rates["layer4.1.conv1.weight"] == 0.5
    assert rates["conv1.weight"] == 2 * 0.5**9
    assert rates["bn1.weight"] == 0.5**9


@pytest.mark.parametrize(
    ("name", "patterns"), [("resnet18", ["conv1", "bn1", "layer1"]), ("wrn10_1", ["stem", "blocks.0"])]
)
def test_stems_and_stages_freeze_by_their_names(name: str, patterns: list[str]) -> None:
    model = build(name)
    freeze(model, patterns)
    frozen = {parameter for parameter, value in model.named_parameters() if not value.requires_grad}
    assert frozen == {one for one in layer_depths(model) if one.startswith(tuple(f"{each}." for each in patterns))}
    model.train()(torch.zeros(2, 3, 32, 32)).sum().backward()
    assert all(value.grad is None for parameter, value in model.named_parameters() if parameter in frozen)
