import json
from dataclasses import replace

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


@pytest.mark.parametrize("nesterov", [False, True])
def test_momentum_needs_no_correction_where_the_rate_changes(nesterov: bool) -> None:
    """arXiv 1706.02677, 3: momentum that has the rate inside (eq. 10) must be corrected; ours (eq. 9) has it outside.

    Both are computed in warm-up and over a drop to a tenth: with the correction they are the same, without it not.
    """
    rate = Schedule("step", 0.4, 40, 8, "linear", 1 / 16, (20, 30), 0.1, 2.0, 0.0, warmup_offset=0)
    start = torch.randn(50, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    params = {"w": start.clone().requires_grad_()}
    update = Update(params, [], optim(f"nesterov={nesterov}", "weight_decay=1e-3"), rate)

    def gradient(step: int, weight: Tensor) -> Tensor:
        noise = torch.randn(50, generator=torch.Generator().manual_seed(step), dtype=torch.float64)
        return noise + 0.5 * weight + 1e-3 * weight

    def with_rate_inside(corrected: bool) -> Tensor:
        weight, moved = start.clone(), torch.zeros_like(start)
        for step in range(40):
            ratio = rate(step) / rate(step - 1) if corrected and step else 1.0
            grad = rate(step) * gradient(step, weight)
            moved = 0.9 * ratio * moved + grad
            weight = weight - (grad + 0.9 * moved if nesterov else moved)
        return weight

    for step in range(40):
        weight = params["w"].detach()
        params["w"].grad = gradient(step, weight) - 1e-3 * weight  # the update adds the decay
        update(step)
    torch.testing.assert_close(params["w"].detach(), with_rate_inside(corrected=True), rtol=1e-9, atol=1e-12)
    assert float((params["w"].detach() - with_rate_inside(corrected=False)).abs().max()) > 1e-2


@pytest.mark.parametrize("name", ["sgd", "rmsprop", "muon-sgd", "adam", "adamw"])
def test_what_an_optimizer_remembers_does_not_hold_the_rate(name: str) -> None:
    """The same gradients at other rates leave the same state: so the rate is not inside of it."""
    remembered = []
    for peak in (0.1, 0.3):
        params = parameters()
        schedule = replace(COSINE, peak=peak)
        update = Update(params, [], optim(f"name={name}", "weight_decay=0"), schedule)
        for step in range(6):
            for key, param in params.items():
                param.grad = torch.randn(param.shape, generator=torch.Generator().manual_seed(100 * step + len(key)))
            assert update(step) == schedule(step)
        remembered.append(update.state()[0])
    assert remembered[0].keys() == remembered[1].keys()
    for key, tensor in remembered[0].items():
        assert torch.equal(tensor, remembered[1][key]), key


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
