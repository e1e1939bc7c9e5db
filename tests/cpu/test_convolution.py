"""Each algorithm of a convolution and its gradients gives the same result, and the choice is made once and kept."""

import copy
import itertools
import json
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from phalanx import cpu
from phalanx.config.schema import MachineConfig
from phalanx.cpu import tuning
from phalanx.cpu.convolution import (
    PLAIN,
    ConvAlgorithms,
    Shape,
    TunedConv2d,
    algorithms_for,
    output,
    size_of,
    tune_convolutions,
)
from phalanx.engine.state import TrainState
from phalanx.machine.settings import choose
from phalanx.machine.timings import machine
from phalanx.native.build import find_library

pytestmark = pytest.mark.numeric


def images(count: int, channels: int, size: int, dtype: torch.dtype = torch.float32) -> Tensor:
    made = torch.randn(count, channels, size, size + 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return made.to(dtype).contiguous(memory_format=torch.channels_last)


def trained(conv: nn.Conv2d, x: Tensor) -> list[Tensor]:
    """Output and gradients: of the input, the weight, and the bias if there is one."""
    x = x.clone().requires_grad_()
    y = conv(x)
    (y * y.detach().sin()).sum().backward()
    grads = [x.grad, *(param.grad for param in conv.parameters())]
    return [y.detach(), *(grad for grad in grads if grad is not None)]


@pytest.mark.parametrize(
    ("kernel", "stride", "padding"), [(1, 1, 0), (1, 2, 0), (3, 1, 1), (3, 2, 1), (2, 2, 0), (5, 3, 1), (7, 2, 3)]
)
@pytest.mark.parametrize("bias", [False, True])
def test_every_algorithm_gives_the_gradients_of_a_convolution(
    kernel: int, stride: int, padding: int, bias: bool
) -> None:
    torch.manual_seed(0)
    plain = nn.Conv2d(6, 10, kernel, stride, padding, bias=bias).to(memory_format=torch.channels_last)
    exact = copy.deepcopy(plain).double()
    expected = trained(exact, images(5, 6, 11, torch.float64))
    shape = Shape((stride, stride), (padding, padding))
    for algorithms in all_algorithms(plain.weight, shape):
        tuned = copy.deepcopy(plain)
        tune_convolutions(tuned)
        assert isinstance(tuned, TunedConv2d)
        tuned.kept = {size_of(images(5, 6, 11)): algorithms}
        got = trained(tuned, images(5, 6, 11))
        for mine, theirs in zip(got, expected, strict=True):
            torch.testing.assert_close(mine.double(), theirs, rtol=1e-4, atol=1e-4)
        assert all(torch.equal(*pair) for pair in zip(got, trained(_fresh(tuned), images(5, 6, 11)), strict=True))
    assert len(all_algorithms(plain.weight, shape)) == {(1, 1): 8, (1, 2): 1}.get((kernel, stride), 2)


def all_algorithms(weight: Tensor, shape: Shape) -> list[ConvAlgorithms]:
    return [ConvAlgorithms(*ways) for ways in itertools.product(*algorithms_for(weight, shape).values())]


@pytest.mark.skipif(find_library("winograd").handle is None, reason=find_library("winograd").reason)
@pytest.mark.parametrize(("into", "out"), [(8, 8), (24, 40), (16, 72), (64, 32)])
@pytest.mark.parametrize(("padding", "size"), [(0, 3), (0, 9), (1, 1), (1, 4), (1, 15), (2, 6)])
def test_winograd_is_the_same_convolution(into: int, out: int, padding: int, size: int) -> None:
    torch.manual_seed(0)
    plain = nn.Conv2d(into, out, 3, 1, padding).to(memory_format=torch.channels_last)
    shape = Shape((1, 1), (padding, padding))
    assert [ways[-1] for ways in algorithms_for(plain.weight, shape).values()] == ["winograd"] * 3
    x = images(7, into, size)
    expected = trained(copy.deepcopy(plain).double(), x.double())
    results = []
    for threads in (1, 2, 3):
        tuned = copy.deepcopy(plain)
        tune_convolutions(tuned)
        assert isinstance(tuned, TunedConv2d)
        tuned.kept = {size_of(x): ConvAlgorithms("winograd", "winograd", "winograd")}
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        try:
            results.append(trained(tuned, x))
        finally:
            torch.set_num_threads(before)
        assert tuned.weight.grad is not None
        assert tuned.weight.grad.stride() == plain.weight.stride()
    for got in results:
        for mine, theirs in zip(got, expected, strict=True):
            assert float((mine - theirs).abs().max()) <= 5e-5 * float(theirs.abs().max())
        assert all(torch.equal(*pair) for pair in zip(got[:3], results[0], strict=False))  # whoever shares the work


@pytest.mark.skipif(find_library("winograd").handle is None, reason=find_library("winograd").reason)
def test_winograd_of_more_tiles_than_are_carried_through_at_a_time() -> None:
    torch.manual_seed(0)
    plain = nn.Conv2d(64, 64, 3, 1, 1, bias=False)  # its weight is contiguous, not channels_last
    x = images(6, 64, 50)
    expected = trained(copy.deepcopy(plain).double(), x.double())
    tune_convolutions(plain)
    assert isinstance(plain, TunedConv2d)
    plain.kept = {size_of(x): ConvAlgorithms("winograd", "winograd", "winograd")}
    for mine, theirs in zip(trained(plain, x), expected, strict=True):
        assert float((mine - theirs).abs().max()) <= 1e-4 * float(theirs.abs().max())


def test_winograd_is_for_no_other_convolutions() -> None:
    for weight, stride, padding in (
        (torch.zeros(8, 8, 3, 3), (2, 2), (1, 1)),
        (torch.zeros(8, 8, 3, 3), (1, 1), (1, 0)),
        (torch.zeros(8, 8, 3, 3), (1, 1), (3, 3)),
        (torch.zeros(8, 12, 3, 3), (1, 1), (1, 1)),
        (torch.zeros(8, 8, 3, 1), (1, 1), (1, 1)),
        (torch.zeros(8, 8, 3, 3, dtype=torch.bfloat16), (1, 1), (1, 1)),
    ):
        assert "winograd" not in algorithms_for(weight, Shape(stride, padding))["weight"]


def _fresh(conv: nn.Conv2d) -> nn.Conv2d:
    conv = copy.deepcopy(conv)
    conv.zero_grad(set_to_none=True)
    return conv


def test_in_bf16_gradients_are_as_good_as_those_of_autocast() -> None:
    torch.manual_seed(0)
    plain = nn.Conv2d(16, 16, 3, padding=1).to(memory_format=torch.channels_last)
    exact = trained(copy.deepcopy(plain).double(), images(4, 16, 12, torch.float64))
    tuned = copy.deepcopy(plain)
    tune_convolutions(tuned)
    assert isinstance(tuned, TunedConv2d)
    tuned.kept = {size_of(images(4, 16, 12)): ConvAlgorithms(weight="columns")}
    with torch.autocast("cpu", torch.bfloat16):
        got, theirs = trained(tuned, images(4, 16, 12)), trained(plain, images(4, 16, 12))
    assert [each.dtype for each in got] == [each.dtype for each in theirs]
    for mine, other, right in zip(got, theirs, exact, strict=True):
        assert float((mine - right).norm()) <= 1.5 * float((other - right).norm()) + 1e-6


def test_the_choice_is_made_once_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(tuning, "WORTH_FLOPS", 0)
    first, second = (nn.Conv2d(4, 4, 1).to(memory_format=torch.channels_last) for _ in range(2))
    state = torch.get_rng_state()
    for conv in (first, second):
        tune_convolutions(conv)
        conv(images(3, 4, 6))
    assert torch.equal(torch.get_rng_state(), state)  # dropout draws from it
    (file,) = tmp_path.rglob("*.json")
    ((key, kept),) = json.loads(file.read_text()).items()
    assert "2+ of 4x6x7 by 4x4x1x1" in key
    assert isinstance(first, TunedConv2d)
    assert isinstance(second, TunedConv2d)
    assert first.algorithms == second.algorithms == ConvAlgorithms(*kept)
    assert "timed the algorithms of 1 convolutions" in tuning.report()
    assert tuning.report() == ""
    file.write_text(json.dumps({key: ["convolution", "product", "columns"]}))
    third = nn.Conv2d(4, 4, 1).to(memory_format=torch.channels_last)
    tune_convolutions(third)
    third(images(2, 4, 6))
    assert third.algorithms == ConvAlgorithms(data="product", weight="columns")
    for broken in ("{ broken", "[1, 2]", json.dumps({key: ["product", "columns"]}), json.dumps({key: None})):
        file.write_text(broken)
        conv = nn.Conv2d(4, 4, 1).to(memory_format=torch.channels_last)
        tune_convolutions(conv)
        conv(images(2, 4, 6))
        assert ConvAlgorithms(*json.loads(file.read_text())[key]) in all_algorithms(conv.weight, Shape((1, 1), (0, 0)))


def test_what_follows_may_work_in_place() -> None:
    for algorithms in all_algorithms(torch.zeros(8, 8, 1, 1), Shape((1, 1), (0, 0))):
        model = nn.Sequential(nn.Conv2d(8, 8, 1), nn.Hardswish(inplace=True)).to(memory_format=torch.channels_last)
        tune_convolutions(model)
        assert isinstance(model[0], TunedConv2d)
        model[0].kept = {size_of(images(2, 8, 5)): algorithms}
        model(images(2, 8, 5)).sum().backward()


def test_a_choice_holds_for_what_it_was_made_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    conv = nn.Conv2d(16, 16, 3).to(memory_format=torch.channels_last)
    exact = copy.deepcopy(conv).double()
    tune_convolutions(conv)
    assert isinstance(conv, TunedConv2d)
    x = images(2, 16, 9)
    conv.kept = {size_of(x): ConvAlgorithms("winograd", "winograd", "winograd")}
    conv(x)
    with torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(conv(x).double(), exact(x.double()), rtol=0.1, atol=0.1)
    torch.testing.assert_close(copy.deepcopy(conv).double()(x.double()), exact(x.double()))
    with pytest.raises(RuntimeError, match="to have 16 channels"):
        conv(images(2, 32, 9))
    with pytest.raises(RuntimeError, match="can't be greater than actual input size"):
        conv(images(2, 16, 1))
    assert conv(x[:0]).shape == (0, 16, 7, 8)


def test_a_larger_batch_chooses_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    conv = nn.Conv2d(16, 16, 3).to(memory_format=torch.channels_last)
    monkeypatch.setattr(tuning, "WORTH_FLOPS", 2 * 16 * 9 * 16 * 30 * 31 * 4)
    tune_convolutions(conv)
    for count, timed in ((1, False), (7, True), (2, True)):
        conv(images(count, 16, 32))
        assert bool(list(tmp_path.rglob("*.json"))) == timed


def test_each_size_has_its_own_algorithms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    conv = nn.Conv2d(16, 16, 3).to(memory_format=torch.channels_last)
    tune_convolutions(conv)
    assert isinstance(conv, TunedConv2d)
    small, large = images(2, 16, 5), images(2, 16, 8)
    columns, plain = ConvAlgorithms(weight="columns"), ConvAlgorithms()
    conv.kept = {size_of(small): columns}
    conv(small)
    assert conv.algorithms == columns
    conv(large)
    assert conv.algorithms == plain  # too little to be worth a try
    assert conv.known == {size_of(small): columns, size_of(large): plain}
    resumed = nn.Sequential(copy.deepcopy(conv))
    cpu.load(resumed, json.loads(json.dumps(cpu.state(nn.Sequential(conv)))))
    for model in (conv, resumed[0]):
        assert isinstance(model, TunedConv2d)
        model(small)
        assert model.algorithms == columns
        assert list(model.known) == [size_of(large), size_of(small)]  # the last in use is the last


@pytest.mark.parametrize("channels", [1, 3, 5, 11])
def test_few_channels_with_a_stride_train(channels: int) -> None:
    torch.manual_seed(0)
    conv = nn.Conv2d(channels, 48, 1, 2, bias=False).to(memory_format=torch.channels_last)
    expected = trained(copy.deepcopy(conv).double(), images(4, channels, 64, torch.float64))
    tune_convolutions(conv)
    for mine, theirs in zip(trained(conv, images(4, channels, 64)), expected, strict=True):
        torch.testing.assert_close(mine.double(), theirs, rtol=1e-4, atol=1e-4)


def test_a_checkpoint_keeps_the_choice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(tuning, "WORTH_FLOPS", 0)
    model = nn.Sequential(nn.Conv2d(4, 4, 1), nn.Conv2d(4, 4, 3)).to(memory_format=torch.channels_last)
    tune_convolutions(model)
    fresh, elsewhere = copy.deepcopy(model), copy.deepcopy(model)
    for module, algorithms in zip(
        model, (ConvAlgorithms("product", "product", "columns"), ConvAlgorithms(weight="columns")), strict=True
    ):
        assert isinstance(module, TunedConv2d)
        module.kept = {size_of(images(3, 4, 6)): algorithms}
    numbers = json.loads(json.dumps(TrainState(model).numbers()))
    TrainState(fresh).restore(numbers)
    fresh(images(3, 4, 6))
    assert [module.known for module in fresh] == [module.known for module in model]
    assert not list(tmp_path.rglob("*.json"))  # nothing was timed
    numbers["forms"]["on"] = "another machine"  # which changes nothing: a run keeps what it began with
    TrainState(fresh).restore(numbers)
    assert [module.known for module in fresh] == [module.known for module in model]
    assert cpu.state(fresh)["on"] == "another machine"
    elsewhere(images(3, 4, 6))
    assert list(tmp_path.rglob("*.json"))
    wrong = {"0": {"6x7": ["winograd"] * 3}, "1": {"6x7": ["convolution", "wrong", "columns"]}}
    numbers["forms"] = {"on": machine(), "of": wrong}
    impossible = copy.deepcopy(elsewhere)
    for module in impossible:
        assert isinstance(module, TunedConv2d)
        module.algorithms = None
    TrainState(impossible).restore(numbers)
    impossible(images(3, 4, 6))
    assert [module.algorithms for module in impossible] == [module.algorithms for module in elsewhere]
    del numbers["forms"]
    TrainState(impossible).restore(numbers)


def test_small_evaluated_and_other_convolutions_are_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    model = nn.Sequential(nn.Conv2d(4, 4, 3), nn.Conv2d(4, 4, 3, groups=2), nn.Conv2d(4, 4, 3, padding="same"))
    model.to(memory_format=torch.channels_last)
    tune_convolutions(model)
    assert [type(module) for module in model] == [TunedConv2d, nn.Conv2d, nn.Conv2d]
    with torch.no_grad():
        model(images(2, 4, 9))
    assert getattr(model[0], "algorithms", "?") is None
    model(images(2, 4, 9))
    assert model[0].algorithms == PLAIN
    assert not list(tmp_path.rglob("*.json"))
    assert list(copy.deepcopy(model).state_dict()) == list(model.state_dict())


@pytest.mark.skipif(find_library("winograd").handle is None, reason=find_library("winograd").reason)
def test_evaluation_uses_the_algorithm_of_training(monkeypatch: pytest.MonkeyPatch) -> None:
    conv = nn.Conv2d(16, 8, 3, padding=1)
    plain = nn.Sequential(conv).to(memory_format=torch.channels_last)
    tuned = copy.deepcopy(plain)
    tune_convolutions(tuned)
    unknown = copy.deepcopy(tuned)
    assert isinstance(tuned[0], TunedConv2d)
    algorithms = ConvAlgorithms(output="winograd")
    tuned[0].kept = {"8x8": ConvAlgorithms(), "16x16": algorithms}
    monkeypatch.setattr(tuning, "machine", lambda: "here")
    saved = json.loads(json.dumps(cpu.state(tuned)))
    monkeypatch.setattr(tuning, "machine", lambda: "elsewhere")
    x = images(3, 16, 9)  # of a size that was not trained: the last that was
    with torch.inference_mode():
        theirs, expected = plain(x), output(x, conv.weight, conv.bias, Shape((1, 1), (1, 1)), algorithms)
        assert not torch.equal(expected, theirs)
        assert torch.equal(tuned(x), expected)
        assert torch.equal(unknown(x), theirs)
        cpu.load(unknown, saved)
        assert torch.equal(unknown(x), expected)
        assert cpu.state(unknown)["of"] == saved["of"]  # by a run that evaluates and saves before it makes a step
        cpu.load(unknown, {})  # of a checkpoint that is older
        assert torch.equal(unknown(x), expected)
        with torch.autocast("cpu", torch.bfloat16):
            assert torch.equal(unknown(x), plain(x))


def test_where_it_is_used_is_decided_with_a_reason() -> None:
    assert choose(MachineConfig()).fast_path == ("native" if find_library("winograd").handle else "products")
    for settings in ({"fast_path": "off"}, {"compile": True}, {"channels_last": False}):
        assert choose(MachineConfig.model_validate(settings)).fast_path == "off"
