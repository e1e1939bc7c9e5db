"""Denoising blocks start as the identity, compute what the paper says, and learn."""

import copy

import pytest
import torch
from torch import Tensor, nn

from phalanx import cpu
from phalanx.config.schema import DenoiseConfig, ModelConfig
from phalanx.errors import UserError
from phalanx.models.build import build_model
from phalanx.models.denoise import Denoise

KINDS = [("softmax", True), ("softmax", False), ("dot", True), ("dot", False), ("mean", False)]


def maps(channels: int, size: int) -> Tensor:
    made = torch.randn(3, channels, size, size + 1, generator=torch.Generator().manual_seed(0))
    return made.contiguous(memory_format=torch.channels_last)


def mean_by_definition(block: Denoise, x: Tensor) -> Tensor:
    """Position by position, as the paper writes it."""
    query, key = (layer(x).flatten(2) for layer in (block.query, block.key))
    weights = torch.einsum("nci,ncj->nij", query, key)
    weights = (weights / query.shape[1] ** 0.5).softmax(2) if block.kind == "softmax" else weights / key.shape[2]
    return torch.einsum("nij,ncj->nci", weights, x.flatten(2)).reshape(x.shape)


@pytest.mark.parametrize(("kind", "embed"), KINDS)
@pytest.mark.parametrize(("channels", "size"), [(8, 5), (48, 3)])  # fewer and more channels than positions
def test_a_block_starts_as_the_identity_and_learns(kind: str, embed: bool, channels: int, size: int) -> None:
    torch.manual_seed(0)
    block, x = Denoise(channels, kind, embed=embed).train(), maps(channels, size).requires_grad_()
    assert torch.equal(block(x), x)
    assert block(x).is_contiguous(memory_format=torch.channels_last)
    if kind != "mean":
        torch.testing.assert_close(block._mean(x), mean_by_definition(block, x), rtol=1e-4, atol=1e-5)
    nn.init.ones_(block.norm.weight)
    (block(x) * maps(channels, size)).sum().backward()
    assert all(param.grad is not None and param.grad.isfinite().all() for param in block.parameters())
    assert block.conv.weight.grad is not None
    assert block.conv.weight.grad.abs().sum() > 0
    assert x.grad is not None


def test_the_mean_of_neighbours_counts_those_that_are_there() -> None:
    block = Denoise(2, "mean", embed=True)
    assert torch.equal(block._mean(torch.ones(1, 2, 4, 4)), torch.ones(1, 2, 4, 4))
    assert not list(block.query.parameters())


@pytest.mark.parametrize(("name", "stages"), [("resnet18", ["layer1", "layer4"]), ("cifar_resnet20", ["blocks"])])
def test_a_network_with_blocks_answers_as_before_and_keeps_its_names(name: str, stages: list[str]) -> None:
    torch.manual_seed(0)
    plain = build_model(ModelConfig(name=name), num_classes=5, channels=3, image_size=32).eval()
    torch.manual_seed(0)
    config = ModelConfig(name=name, denoise=DenoiseConfig(after=stages))
    model = build_model(config, num_classes=5, channels=3, image_size=32).eval()
    assert sum(isinstance(module, Denoise) for module in model.modules()) == len(stages)
    assert plain.state_dict().keys() < model.state_dict().keys()
    images = torch.randn(2, 3, 32, 32).contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(model(images), plain(images))
    fast = copy.deepcopy(model).to(memory_format=torch.channels_last).train()
    slow = copy.deepcopy(fast)
    cpu.prepare(fast, "native", to_train=True)
    torch.testing.assert_close(fast(images), slow(images), rtol=1e-3, atol=1e-3)


def test_stages_that_are_not_there_are_refused_with_those_that_are() -> None:
    def build(name: str, after: str) -> None:
        config = ModelConfig(name=name, denoise=DenoiseConfig(after=[after]))
        build_model(config, num_classes=5, channels=3, image_size=32)

    with pytest.raises(UserError, match="no stage called 'layer5'") as caught:
        build("resnet18", "layer5")
    assert "layer4" in caught.value.remedy
    with pytest.raises(UserError, match="no stage called 'bn1'"):
        build("resnet18", "bn1")
