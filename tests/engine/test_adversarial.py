"""Attacked images are right, are the same wherever they are made, and making them leaves no trace in the model."""

import copy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from phalanx import cpu
from phalanx.config.schema import AdversarialConfig, MachineConfig, ModelConfig
from phalanx.data.augment.mixing import Targets
from phalanx.data.base import MicroBatch
from phalanx.engine.adversarial import Adversarial
from phalanx.engine.attack import Attack, PixelRange
from phalanx.engine.attack_draws import chosen, first_changes, wrong_classes
from phalanx.engine.attacked_model import attacked
from phalanx.engine.fgsm_guard import FgsmGuard
from phalanx.engine.objective import Supervised, View
from phalanx.engine.state import TrainState
from phalanx.engine.step import train_step
from phalanx.machine.settings import choose
from phalanx.models.build import build_model
from tests.engine.tiny import network, same, tiny_run

MEAN, STD = [0.4, 0.5, 0.6], [0.2, 0.25, 0.5]
PIXELS = PixelRange.of(MEAN, STD, torch.device("cpu"))


def view(rows: slice = slice(None), count: int = 12, epoch: int = 3) -> View:
    made = torch.rand(count, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    made[0], made[1] = 0.0, 1.0  # at the ends of the range
    images = ((made - PIXELS.mean) / PIXELS.std).contiguous(memory_format=torch.channels_last)
    labels, indices = torch.arange(count) % 4, 7 * torch.arange(count)
    micro = MicroBatch(0, torch.empty(0), labels[rows], indices[rows])
    return View(images[rows], Targets(labels[rows]), micro, epoch, 0, 0)


def objective(model: nn.Module, **settings: Any) -> Adversarial:
    config = AdversarialConfig.model_validate({"attack": "pgd", **settings})
    return Adversarial(config, Supervised(F.cross_entropy), model, PIXELS, 4, seed=5)


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_attacked_images_are_within_eps_and_valid_and_have_a_higher_loss(norm: str) -> None:
    model, seen, eps = network(norm=True).train(), view(), {"linf": 8 / 255, "l2": 0.5}[norm]
    images = objective(model, norm=norm, eps=eps, batch_norm="eval").attack(seen)
    before, after = PIXELS.pixels(seen.images), PIXELS.pixels(images)
    change = (after - before).flatten(1)
    size = change.abs().amax(1) if norm == "linf" else change.norm(dim=1)
    assert eps / 2 < float(size.max()) <= eps * 1.0001
    assert float(after.min()) > -1e-6
    assert float(after.max()) < 1 + 1e-6
    assert images.is_contiguous(memory_format=torch.channels_last)
    model.eval()
    loss = [F.cross_entropy(model(each), seen.targets.labels, reduction="none") for each in (seen.images, images)]
    assert (loss[1] > loss[0]).all()


def test_targeted_attacks_move_towards_the_drawn_class() -> None:
    model, seen = network().eval(), view()
    images = objective(model, eps=0.2, targeted="random").attack(seen)
    wrong = wrong_classes(seen.targets.labels, 4, 5, seen.epoch, seen.micro.indices.numpy())
    assert (wrong != seen.targets.labels).all()
    loss = [F.cross_entropy(model(each), wrong) for each in (seen.images, images)]
    assert loss[1] < loss[0]


@pytest.mark.parametrize("settings", [{}, {"norm": "l2"}, {"mix": 0.4, "clean_start": 0.3}, {"attack": "fgsm"}])
def test_a_samples_images_do_not_depend_on_the_micro_batch_it_is_in(settings: dict[str, Any]) -> None:
    """Running statistics: a sample is by itself. With those of the micro-batch, the same micro-batch is the same."""
    model = network(norm=True).train()
    whole = objective(model, batch_norm="eval", **settings).attack(view())
    halves = [objective(model, batch_norm="eval", **settings).attack(view(rows)) for rows in (slice(5), slice(5, 12))]
    torch.testing.assert_close(torch.cat(halves), whole, rtol=1e-5, atol=1e-5)
    other_epoch = objective(model, batch_norm="eval", **settings).attack(view(epoch=4))
    assert not torch.equal(other_epoch, whole)
    again = objective(copy.deepcopy(model), **settings).attack(view(slice(5)))
    assert torch.equal(again, objective(model, **settings).attack(view(slice(5))))


def test_draws_are_uniform_and_shares_are_kept() -> None:
    images, indices = torch.zeros(400, 1, 6, 6), np.arange(400)
    flat = first_changes(images, "linf", 0.5, 0, "start", 0, indices)
    assert flat.abs().max() <= 0.5
    assert abs(float(flat.mean())) < 0.01
    assert float(flat.std()) == pytest.approx(0.5 / 3**0.5, abs=0.01)
    ball = first_changes(images, "l2", 0.5, 0, "start", 0, indices).flatten(1)
    lengths = ball.norm(dim=1)
    assert lengths.max() <= 0.5
    assert float(lengths.mean()) == pytest.approx(0.5 * 36 / 37, abs=0.01)  # uniform in the ball of 36 dimensions
    assert ball.mean(0).abs().max() < 0.02
    labels = torch.zeros(4000, dtype=torch.int64)
    counts = torch.bincount(wrong_classes(labels, 5, 0, 0, np.arange(4000)), minlength=5).tolist()
    assert counts[0] == 0
    assert min(counts[1:]) > 900
    assert chosen(0.25, 0, "clean", 0, np.arange(4000)).mean() == pytest.approx(0.25, abs=0.03)


@pytest.mark.parametrize("batch_norm", ["train", "eval"])
def test_an_attack_leaves_no_trace_in_the_model(batch_norm: str) -> None:
    model = network(norm=True, drop=0.5).train()
    assert isinstance(model[0].weight, nn.Parameter)
    model[0].weight.requires_grad_(False)  # frozen
    called: list[str] = []
    for param in model[6].parameters():
        param.register_post_accumulate_grad_hook(lambda _: called.append("hook"))
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    torch.manual_seed(3)
    images = objective(model, batch_norm=batch_norm).attack(view())
    assert torch.rand(1) == torch.rand(1, generator=torch.Generator().manual_seed(3))  # dropout drew nothing
    assert same(before, model.state_dict())
    assert not images.requires_grad
    assert not called
    assert all(param.grad is None for param in model.parameters())
    assert [name for name, param in model.named_parameters() if not param.requires_grad] == ["0.weight"]
    assert all(module.training for module in model.modules())
    with pytest.raises(RuntimeError), attacked(model, batch_norm):
        model(view().images[:, :1])  # fails
    assert same(before, model.state_dict())
    assert model.training


@pytest.mark.numeric
@pytest.mark.parametrize("batch_norm", ["train", "eval"])
@pytest.mark.parametrize("path", ["native", "products"])
def test_gradients_of_images_on_the_fast_path_are_those_of_torch(path: Any, batch_norm: str) -> None:
    """The first convolution's gradient of its input is needed by nothing else, so nothing else would notice."""
    torch.manual_seed(0)
    plain = build_model(ModelConfig(name="cifar_resnet20"), num_classes=4, channels=3, image_size=16)
    plain = plain.to(memory_format=torch.channels_last).train()
    for module in plain.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.weight, 0.5, 1.5)
    fast = copy.deepcopy(plain)
    settings = choose(MachineConfig(device="cpu", precision="fp32", threads=1, fast_path=path))
    cpu.prepare(fast, path, to_train=True)
    images = torch.randn(6, 3, 16, 16).contiguous(memory_format=torch.channels_last)
    cpu.choose(fast, [(6, 3, 16, 16)], settings)

    def gradient(model: nn.Module, seen: Tensor) -> Tensor:
        with attacked(model, batch_norm):
            seen = seen.clone().requires_grad_()
            return torch.autograd.grad(F.cross_entropy(model(seen), torch.arange(6) % 4), [seen])[0]

    exact = gradient(copy.deepcopy(plain).double(), images.double()).float()
    found = gradient(fast, images)
    assert float((found - exact).norm() / exact.norm()) < 1e-4
    assert all(param.grad is None for param in fast.parameters())


@pytest.mark.parametrize(
    "settings",
    [
        ("adversarial.loss=trades",),
        ("adversarial.loss=trades", "machine.precision=bf16"),
        ("adversarial.eps=4/255", "adversarial.mix=0.5"),
        ("adversarial.norm=l2", "machine.precision=bf16", "augment.mixup=1", "adversarial.batch_norm=eval"),
    ],
)
def test_steps_train_on_attacked_images(settings: tuple[str, ...]) -> None:
    run = tiny_run("adversarial.attack=pgd", "adversarial.steps=2", *settings, model=network(norm=True))
    pixels = PixelRange.of(run.spec.mean, run.spec.std, torch.device("cpu"))
    inner = run.engine.objective
    method = Adversarial(run.config.adversarial, inner, run.state.model, pixels, 4, seed=0)
    engine = replace(run.engine, objective=method)
    seen = 0
    hook = run.state.model.register_forward_hook(lambda *_: _count())

    def _count() -> None:
        nonlocal seen
        seen += torch.is_grad_enabled() and run.state.model.training

    before = run.weights()
    done = train_step(run.state, run.batch(), run.exchange, engine)
    hook.remove()
    assert done.totals.samples == 8
    assert seen == 1  # one pass in which gradients of the weights arise, which is the exchange's
    assert not same(before, run.weights())
    assert int(run.state.model.state_dict()["1.num_batches_tracked"]) == 1


class Counting:
    """A guard that counts steps."""

    def take(self) -> list[float]:
        return [1.0]

    def decide(self, counts: list[float]) -> str:
        return f"counted {counts}"


def test_a_guards_counts_go_with_the_steps_and_its_note_comes_back() -> None:
    run = tiny_run()
    done = train_step(run.state, run.batch(), run.exchange, replace(run.engine, guard=Counting()))
    assert done.note == "counted [1.0]"
    assert done.totals.samples == 8
    assert train_step(run.state, run.batch(), run.exchange, run.engine).note == ""


def test_trades_adds_the_distance_of_answers_by_its_weight() -> None:
    model, seen = network().train(), view()
    losses = {}
    for beta in (0.0, 1.0, 3.0):
        method = objective(model, loss="trades", beta=beta)
        logits, loss = method(seen, model)
        losses[beta] = loss.detach()
        attacked_images = method.attack(seen)
    clean = model(seen.images).detach()
    assert float(losses[0.0]) == pytest.approx(float(F.cross_entropy(clean, seen.targets.labels)), rel=1e-5)
    robust = model(attacked_images).detach()
    torch.testing.assert_close(logits.detach(), robust)
    distance = (clean.softmax(1) * (clean.log_softmax(1) - robust.log_softmax(1))).sum(1).mean()
    assert float(losses[3.0] - losses[0.0]) == pytest.approx(3 * float(distance), rel=1e-3)
    assert float(losses[1.0] - losses[0.0]) == pytest.approx(float(distance), rel=1e-3)


class Masked(nn.Module):
    """A classifier of one number; a broken one is right at the ends of what an attack may do, and wrong in between."""

    def __init__(self, broken: bool) -> None:
        super().__init__()
        self.broken = broken

    def forward(self, images: Tensor) -> Tensor:
        value = images.mean((1, 2, 3))
        if self.broken:
            value = (value.abs() - 0.024) * 100
        return torch.stack([-value, value], 1)


@pytest.mark.parametrize("broken", [True, False])
def test_the_guard_gives_fgsm_up_where_only_pgd_is_an_attack(broken: bool) -> None:
    state = TrainState(nn.Identity())
    guard = FgsmGuard(state, every=4)
    assert [step for step in range(9) if guard.due(step)] == [3, 7]
    labels = torch.ones(16, dtype=torch.int64)
    ends, between = torch.full((16, 1, 2, 2), 0.03), torch.full((16, 1, 2, 2), 0.01)
    guard.compare(Masked(broken), ends, between, labels)
    assert guard.decide([0.0, 0.0]) == ""
    counts = guard.take()
    assert guard.take() == [0.0, 0.0]
    note = guard.decide(counts)
    assert ("catastrophic overfitting" in note) == broken == guard.tripped
    attack = Attack("linf", 0.03, 0.0375, 1)
    assert guard.instead(attack).steps == 2
    again = TrainState(nn.Identity())
    again.restore(state.numbers())
    assert FgsmGuard(again, every=4).tripped == broken  # a resumed run keeps it
    assert not (FgsmGuard(again, every=4).due(3) and broken)


def test_a_gradient_that_overflows_changes_nothing_of_its_pixel() -> None:
    """As under float16: a NaN in an image would end the run."""
    gradient = torch.tensor([float("nan"), float("inf"), 2.0, -1.0]).view(1, 1, 2, 2)
    pixels = PixelRange.of([0.5], [0.25], torch.device("cpu"))
    for norm in ("linf", "l2"):
        blank = torch.full((1, 1, 2, 2), 0.5)
        change = Attack(norm, 0.1, 0.1, 1).next_change(torch.zeros_like(blank), gradient, blank, pixels)
        assert change.flatten()[:2].tolist() == [0.0, 0.0]
        assert (change.flatten()[2:] * torch.tensor([1.0, -1.0]) > 0).all()
