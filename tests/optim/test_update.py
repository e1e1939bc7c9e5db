import json

import pytest
import torch
from torch import Tensor

from phalanx.config.resolve import parse_override, resolve
from phalanx.config.schema import OptimConfig
from phalanx.errors import UserError
from phalanx.optim.schedule import Schedule
from phalanx.optim.update import Update

pytestmark = pytest.mark.numeric

COSINE = Schedule("cosine", 0.1, 20, 2, "linear", 0.0, (), 0.1, 2.0, 0.0)


def optim(*settings: str) -> OptimConfig:
    return resolve([parse_override(f"optim.{setting}") for setting in settings]).config.optim


def parameters() -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(0)
    shapes = {"conv.weight": (4, 3, 3, 3), "bn.weight": (4,), "bn.bias": (4,), "fc.weight": (10, 4)}
    return {name: torch.randn(shape, generator=generator).requires_grad_() for name, shape in shapes.items()}


def advance(update: Update, params: dict[str, Tensor], steps: range) -> None:
    for step in steps:
        for name, param in params.items():
            generator = torch.Generator().manual_seed(1000 * step + len(name))
            param.grad = torch.randn(param.shape, generator=generator)
        assert update(step) == COSINE(step)
        update.clear()
        assert all(param.grad is None for param in params.values())


def test_sgd_is_the_textbook_update() -> None:
    params = {"w": torch.tensor([1.0, -2.0], requires_grad=True)}
    update = Update(params, [], optim("nesterov=false", "momentum=0.5", "weight_decay=0.1"), COSINE)
    weight, velocity = torch.tensor([1.0, -2.0]), torch.zeros(2)
    for step in range(3):
        gradient = torch.tensor([0.3, 0.7])
        params["w"].grad = gradient.clone()
        lr = update(step)
        gradient = gradient + 0.1 * weight
        velocity = gradient if step == 0 else 0.5 * velocity + gradient
        weight = weight - lr * velocity
    torch.testing.assert_close(params["w"].detach(), weight)


def test_norms_and_biases_are_exempt_from_decay_when_asked() -> None:
    for exempt, settings in ((True, ["decay_norm_and_bias=false"]), (False, [])):
        params = parameters()
        before = {name: param.detach().clone() for name, param in params.items()}
        update = Update(params, ["bn.weight", "bn.bias"], optim("weight_decay=0.5", "momentum=0", *settings), COSINE)
        for param in params.values():
            param.grad = torch.zeros_like(param)
        update(5)
        assert torch.equal(params["bn.weight"], before["bn.weight"]) == exempt
        assert not torch.equal(params["conv.weight"], before["conv.weight"])


@pytest.mark.parametrize(
    "name",
    ["sgd", "adam", "adamw", "rmsprop", "lars", "lamb", "lion", "muon", "muon-sgd", "nadamw", "adopt"],
)
def test_a_saved_state_continues_bit_for_bit(name: str) -> None:
    config = optim(f"name={name}", "weight_decay=0.01")
    whole = parameters()
    uninterrupted = Update(whole, [], config, COSINE)
    advance(uninterrupted, whole, range(8))

    params = parameters()
    first = Update(params, [], config, COSINE)
    advance(first, params, range(3))
    tensors, scalars = first.state()
    scalars = json.loads(json.dumps(scalars))
    second = Update(params, [], config, COSINE)
    second.load({key: value.clone() for key, value in tensors.items()}, scalars)
    advance(second, params, range(3, 8))
    for key, value in whole.items():
        assert torch.equal(value, params[key]), key


@pytest.mark.parametrize(("rows", "columns"), [(16, 144), (64, 27)])
def test_muon_turns_by_its_rate_in_all_directions_alike(rows: int, columns: int) -> None:
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(rows, columns // 9, 3, 3, generator=generator)
    bias = torch.ones(rows)
    params = {"conv.weight": weight.clone().requires_grad_(), "bias": bias.clone().requires_grad_()}
    config = optim(
        "name=muon-sgd", "weight_decay=0.1", "momentum=0", "options={turns: 6, rest_lr: 3, rest_momentum: 0}"
    )
    update = Update(params, [], config, COSINE)
    lopsided = torch.randn(rows, columns, generator=generator) @ torch.logspace(0, -2, columns).diag()
    params["conv.weight"].grad, params["bias"].grad = lopsided.reshape(weight.shape), torch.full((rows,), 0.5)
    lr = update(3)
    held = weight * rows**0.5 / weight.norm()
    moved = ((held - params["conv.weight"].detach()) / lr).reshape(rows, columns)
    found = torch.linalg.svdvals(moved)
    assert found.min() > 0.6
    assert found.max() < 1.25
    strengths = torch.linalg.svdvals(lopsided)
    assert strengths.min() < 0.3 * strengths.max()
    assert (moved * lopsided).sum() > 0.8 * strengths.sum()  # the nearest such matrix has all of it
    torch.testing.assert_close(params["bias"].detach(), bias - 3 * lr * (0.5 + 0.1))


def test_unknown_names_and_options_are_explained() -> None:
    with pytest.raises(UserError, match="adamw"):
        Update(parameters(), [], optim("name=adamww"), COSINE)
    with pytest.raises(UserError, match="there is no optimizer"):
        Update(parameters(), [], optim("name=adahessian"), COSINE)
    with pytest.raises(UserError, match="cannot be made"):
        Update(parameters(), [], optim("options={warp: 9}"), COSINE)
    with pytest.raises(UserError, match="rest_lr=0"):
        Update(parameters(), [], optim("name=muon-sgd", "options={rest_lr: 0}"), COSINE)
    with pytest.raises(UserError, match="muon-sgd"):
        Update(parameters(), [], optim("name=muon-sdg"), COSINE)


def test_the_state_of_another_optimizer_is_refused() -> None:
    tensors, scalars = Update(parameters(), [], optim("name=adam"), COSINE).state()
    with pytest.raises(UserError, match="adam"):
        Update(parameters(), [], optim("name=sgd"), COSINE).load(tensors, scalars)
