"""Batch norms that are computed together with what follows."""

import copy
from collections.abc import Callable
from typing import Any, cast

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from phalanx.config.schema import ModelConfig
from phalanx.cpu import fusion
from phalanx.cpu.fusion import fuse_norms
from phalanx.cpu.normalization import ACTIVATIONS, normalize
from phalanx.models.build import build_model
from phalanx.models.fast import SHIFT_SCALE, ShiftNorm
from phalanx.native.build import find_library

pytestmark = [
    pytest.mark.numeric,
    pytest.mark.skipif(find_library("norm").handle is None, reason=find_library("norm").reason),
]


def images(count: int, channels: int, size: int) -> Tensor:
    made = torch.randn(count, channels, size, size + 1, generator=torch.Generator().manual_seed(0))
    return made.contiguous(memory_format=torch.channels_last)


def norm_of(channels: int, **options: Any) -> nn.BatchNorm2d:
    norm = nn.BatchNorm2d(channels, **options)
    if norm.affine:
        nn.init.uniform_(norm.weight, 0.5, 1.5)
        nn.init.normal_(norm.bias)
    return norm


def trained(
    norm: nn.Module, x: Tensor, added: Tensor | None, act: str | None, way: Callable[..., Tensor]
) -> list[Tensor]:
    """Output, gradients and statistics."""
    norm, x = copy.deepcopy(norm), x.clone().requires_grad_()
    added = None if added is None else added.clone().requires_grad_()
    y = way(norm, x, added, act)
    y.backward(images(len(x), x.shape[1], x.shape[2]).to(y.dtype))
    assert x.grad is not None
    given = [y.detach(), x.grad, *(param.grad for param in norm.parameters() if param.grad is not None)]
    if added is not None:
        assert added.grad is not None
        given.append(added.grad)
    return [*given, *norm.buffers()]


def plain(norm: nn.Module, x: Tensor, added: Tensor | None, act: str | None) -> Tensor:
    y: Tensor = norm(x) if added is None else norm(x) + added
    return ACTIVATIONS[act](y) if act else y


@pytest.mark.parametrize(("count", "channels", "size"), [(2, 3, 1), (5, 8, 7), (4, 37, 20), (64, 16, 8)])
@pytest.mark.parametrize(
    ("act", "add"), [*((act, False) for act in (None, *ACTIVATIONS)), (None, True), ("relu", True)]
)
def test_it_is_what_pytorch_does(count: int, channels: int, size: int, act: str | None, add: bool) -> None:
    torch.manual_seed(0)
    norm, x = norm_of(channels, momentum=0.3), images(count, channels, size) * 3 + 100  # a mean far from 0
    added = images(count, channels, size).flip(0).contiguous(memory_format=torch.channels_last) if add else None
    expected = trained(copy.deepcopy(norm).double(), x.double(), None if added is None else added.double(), act, plain)
    results = []
    for threads in (1, 2, 3):
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        try:
            results.append(trained(norm, x, added, act, normalize))
        finally:
            torch.set_num_threads(before)
    for mine, theirs in zip(results[0], expected, strict=True):
        assert mine.dtype == (torch.float32 if theirs.is_floating_point() else theirs.dtype)
        torch.testing.assert_close(mine.double(), theirs.double(), rtol=1e-3, atol=1e-3)
    for got in results[1:]:
        assert all(torch.equal(*pair) for pair in zip(got, results[0], strict=True))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("act", ["silu", "relu"])
def test_what_is_written_past_the_cache_is_the_same(act: str, dtype: torch.dtype) -> None:
    """With relu something is added, so large that rounding takes no value to the other side of the relu."""
    norm, x = norm_of(64), images(2 if dtype == torch.float32 else 4, 64, 112).to(dtype)
    added = torch.where(x.flip(0) > 0, 10, -10).to(dtype, memory_format=torch.channels_last) if act == "relu" else None
    given = (x.float(), None if added is None else added.float())
    rounding = 1e-4 if dtype == torch.float32 else 2e-2
    for mine, theirs in zip(trained(norm, x, added, act, normalize), trained(norm, *given, act, plain), strict=True):
        torch.testing.assert_close(
            mine.to(theirs.dtype), theirs, rtol=rounding, atol=rounding * float(theirs.abs().max())
        )


@pytest.mark.parametrize("act", ACTIVATIONS)
def test_activations_are_exact_over_their_whole_range(act: str) -> None:
    norm = ShiftNorm(1)
    x = torch.linspace(-1, 1, 20_002).reshape(-1, 1, 1, 2)
    for shift in (-100.0, -12.0, -4.5, -1.5, 0.0, 1.5, 4.5, 12.0, 100.0):  # with 1.7 on either side
        norm.shift.data.fill_(shift / SHIFT_SCALE)
        exact = trained(copy.deepcopy(norm).double(), x.double(), None, act, plain)
        got, theirs = (trained(norm, x, None, act, way) for way in (normalize, plain))
        for mine, other, right in zip(got, theirs, exact, strict=True):
            largest = float(right.abs().max())
            assert float((mine - right).abs().max()) <= 2 * float((other - right).abs().max()) + 1e-5 * (1 + largest)
    x[0] = float("nan")
    assert normalize(norm, x, None, act).isnan().all()


@pytest.mark.parametrize(("act", "add"), [*((act, False) for act in ACTIVATIONS), ("relu", True)])
def test_in_bf16_it_is_as_good_as_pytorch(act: str, add: bool) -> None:
    torch.manual_seed(0)
    norm, x = norm_of(24), images(8, 24, 9).bfloat16()
    added = images(8, 24, 9).flip(0).contiguous(memory_format=torch.channels_last).bfloat16() if add else None
    exact = trained(copy.deepcopy(norm).double(), x.double(), None if added is None else added.double(), act, plain)
    got, theirs = trained(norm, x, added, act, normalize), trained(norm, x, added, act, plain)
    assert [each.dtype for each in got] == [each.dtype for each in theirs]
    for mine, other, right in zip(got, theirs, exact, strict=True):
        assert float((mine.double() - right).norm()) <= 1.5 * float((other.double() - right).norm()) + 1e-5


def test_what_native_code_does_not_know_is_left_to_pytorch() -> None:
    x = images(4, 8, 5)
    for norm, given in (
        (norm_of(8, affine=False), x),
        (norm_of(8, track_running_stats=False), x),
        (norm_of(8, momentum=None), x),
        (norm_of(8), x.contiguous()),
        (norm_of(8).double(), x.double()),
        (norm_of(8).eval(), x),
    ):
        got, expected = (trained(norm, given, None, "relu", way) for way in (normalize, plain))
        assert all(torch.equal(*pair) for pair in zip(got, expected, strict=True))
    with pytest.raises(ValueError, match="more than 1 value per channel"):
        normalize(norm_of(8), images(1, 8, 1)[..., :1])


class Block(nn.Module):
    """Norms in all positions that can and cannot be fused."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c, self.d, self.e = (nn.BatchNorm2d(4) for _ in range(5))
        self.same, self.relu = nn.Identity(), nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        one = self.relu(self.same(self.a(x)))
        two = F.relu(one + self.b(one))
        three = self.c(two)
        four = three.relu() * three  # its output is used twice
        four += self.d(two)  # changes what it is added to
        five: Tensor = self.e(torch.relu(four)).add_(x).relu_()
        return five + x


def test_only_what_nobody_else_sees_is_fused() -> None:
    torch.manual_seed(0)
    block = Block()
    fused = copy.deepcopy(block)
    assert fuse_norms(fused) == 5
    assert isinstance(fused, Block)
    assert list(fused.state_dict()) == list(block.state_dict())
    x = images(3, 4, 6)
    grads = []
    for module in (block, fused, copy.deepcopy(fused)):
        module.zero_grad()
        y = module(x)
        y.square().sum().backward()
        grads.append([y.detach(), *(param.grad for param in module.parameters() if param.grad is not None)])
    for other in grads[1:]:
        for mine, theirs in zip(other, grads[0], strict=True):
            torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-4)
    with torch.no_grad():
        assert torch.equal(fused.eval()(x), _with_buffers_of(block, fused).eval()(x))


def _with_buffers_of(block: nn.Module, other: nn.Module) -> nn.Module:
    block.load_state_dict(other.state_dict())
    return block


class Active(nn.Module):
    """Norms with activations of all kinds behind them, the last two of which are not known."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c, self.d, self.e, self.f = (nn.BatchNorm2d(4) for _ in range(6))
        self.swish, self.gelu, self.rough = nn.Hardswish(inplace=True), nn.GELU(), nn.GELU("tanh")

    def forward(self, x: Tensor) -> Tensor:
        x = F.silu(self.a(x), inplace=True) + F.gelu(self.b(x)) + F.relu6(self.c(x)) + self.swish(self.d(x))
        y: Tensor = F.gelu(self.e(x), approximate="tanh") + self.rough(self.f(x))
        return y


def test_activations_are_found() -> None:
    torch.manual_seed(0)
    model = Active()
    traced: list[str | None] = []

    def spy(norm: nn.Module, x: Tensor, added: Tensor | None = None, act: str | None = None) -> Tensor:
        traced.append(act)
        return normalize(norm, x, added, act)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fusion, "normalize", spy)
        fused = copy.deepcopy(model)
        assert fuse_norms(fused) == 6
    x = images(3, 4, 6)
    torch.testing.assert_close(fused(x), model(x), rtol=1e-5, atol=1e-5)
    assert traced == ["silu", "gelu", "relu6", "hardswish", None, None]


class Odd(nn.Module):
    """Does something that a trace would lose."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.calls = nn.BatchNorm2d(4), 0


class Chance(Odd):
    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.norm(x)) + torch.rand(1)


class OfData(Odd):
    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.norm(x)
        return F.relu(y) if y.detach().sum() > 1e9 else y


class Counts(Odd):
    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return F.relu(self.norm(x))


class Stops(Odd):
    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self._normed(x))

    def _normed(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            return cast(Tensor, self.norm(x))


class Looks(Odd):
    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.norm(x)) if isinstance(x, Tensor) else x


class Optional(Odd):
    def forward(self, x: Tensor, shortcut: Tensor | None = None) -> Tensor:
        shortcut = x if shortcut is None else shortcut
        return F.relu(self.norm(x) + shortcut)


class Named(Odd):
    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.norm(input=x))


class Twice(Odd):
    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.norm(x) + self.norm(x + 1))


@pytest.mark.parametrize("kind", [Chance, OfData, Counts, Stops, Looks, Optional, Named, Twice])
def test_what_a_trace_would_lose_is_left_alone(kind: type[Odd]) -> None:
    module = kind()
    assert fuse_norms(module) == 0
    torch.manual_seed(0)
    got = module(images(2, 4, 5))
    torch.manual_seed(0)
    assert torch.equal(got, kind()(images(2, 4, 5)))


class Double(Odd):
    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(x)
        return F.relu(y + y)


class Number(Odd):
    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.norm(x) + x.size(0))


class Spoiled(Odd):
    """The summand, or what is normalised, changes after it was used."""

    def forward(self, x: Tensor) -> Tensor:
        other, into = x * 2, x * 3
        y = self.norm(into)
        into.mul_(0)
        z = y + other
        other.mul_(0)
        return F.relu(z)


@pytest.mark.parametrize("kind", [Double, Number, Spoiled])
def test_sums_of_another_kind_stay_right(kind: type[Odd]) -> None:
    plain_one = kind()
    fused = copy.deepcopy(plain_one)
    assert fuse_norms(fused) == 1
    with torch.no_grad():  # backward of what is spoiled is refused by torch either way
        expected = plain_one(images(2, 4, 5))
    torch.testing.assert_close(fused(images(2, 4, 5)).detach(), expected)


def test_hooks_slices_and_checkpointing_take_the_modules_own_way() -> None:
    model = nn.Sequential(nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4))
    model.to(memory_format=torch.channels_last)
    assert fuse_norms(model) == 2
    assert torch.equal(model[:3](images(2, 4, 5)), model[2](model[1](model[0](images(2, 4, 5)))))
    seen: list[Tensor] = []
    hook = model[2].register_forward_hook(lambda module, args, result: seen.append(result))
    model(images(2, 4, 5))
    assert len(seen) == 1
    hook.remove()
    model(images(2, 4, 5))
    assert len(seen) == 1


def test_a_norm_without_shift_is_left_to_pytorch() -> None:
    norm = nn.BatchNorm2d(8, bias=False)
    x = images(4, 8, 5)
    got, expected = (trained(norm, x, None, "relu", way) for way in (normalize, plain))
    assert all(torch.equal(*pair) for pair in zip(got, expected, strict=True))


@pytest.mark.parametrize(
    "name",
    [
        "dla46_c",
        "resnet18",
        "resnext26ts",
        "regnetx_002",
        "mobilenetv2_050",
        "mobilenetv3_small_050",
        "efficientnet_lite0",
        "mobilevit_xxs",
        "cifar_fast",
        "convnext_atto",
        "cifar_resnet20",
        "wrn10_1",
    ],
)
def test_models_train_as_before(name: str) -> None:
    torch.manual_seed(0)
    size = 32 if name.startswith(("cifar", "wrn")) else 64
    model = build_model(ModelConfig(name=name), num_classes=7, channels=3, image_size=size)
    model.to(memory_format=torch.channels_last)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.weight, 0.5, 1.5)
    exact, fused = copy.deepcopy(model).double(), copy.deepcopy(model)
    norms = sum(isinstance(module, nn.BatchNorm2d | ShiftNorm) for module in model.modules())
    assert fuse_norms(fused) == (12 if name == "dla46_c" else norms)  # its blocks take an argument or do without
    results, slopes = [], []
    for each in (exact, model, fused):
        torch.manual_seed(1)
        x = images(4, 3, size)[..., :size].contiguous(memory_format=torch.channels_last)
        y = each(x.to(next(each.parameters()).dtype))
        (y * y.detach().sin()).sum().backward()
        results.append(torch.cat([y.detach().double().flatten(), *(b.double().flatten() for b in each.buffers())]))
        assert all(param.grad is not None for param in each.parameters())
        slopes.append(torch.cat([p.grad.double().flatten() for p in each.parameters() if p.grad is not None]))
    right, theirs, mine = results
    assert float((mine - right).norm()) <= 2 * float((theirs - right).norm()) + 1e-6 * float(right.norm())
    # Rounding may take a value to the other side of a relu: that is seen in the gradients, and is no more than this.
    right, theirs, mine = slopes
    assert float((mine - right).norm()) <= 2 * float((theirs - right).norm()) + 2e-2 * float(right.norm())
