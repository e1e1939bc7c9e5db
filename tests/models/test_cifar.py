"""The CIFAR networks: published sizes, every input, blocks that start as the identity, depths that exist."""

import pytest
import torch

from phalanx.errors import UserError
from phalanx.models.cifar import LISTED, BasicBlock, CifarNet, PreactBlock, StochasticDepth, build_cifar, plan_of


def net(name: str, *, num_classes: int = 10, channels: int = 3, **options: float) -> CifarNet:
    plan = plan_of(name)
    assert plan is not None
    return build_cifar(plan, num_classes=num_classes, channels=channels, **options)


def num_params(model: torch.nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize(
    ("name", "params"),
    [
        # He et al. 2015, table 6: 0.27 M, 0.46 M, 0.66 M, 0.85 M, 1.7 M
        ("cifar_resnet20", 269_722),
        ("cifar_resnet32", 464_154),
        ("cifar_resnet44", 658_586),
        ("cifar_resnet56", 853_018),
        ("cifar_resnet110", 1_727_962),
        ("cifar_preact20", 269_722),
        ("cifar_preact110", 1_727_962),
        ("cifar_resnet18", 11_173_962),
        # Zagoruyko & Komodakis 2016, tables 4 and 5: 8.9 M, 11.0 M, 36.5 M
        ("wrn40_4", 8_949_210),
        ("wrn16_8", 10_961_370),
        ("wrn28_10", 36_479_194),
    ],
)
def test_parameters_are_as_published(name: str, params: int) -> None:
    with torch.device("meta"):
        assert num_params(net(name)) == params


def test_every_listed_name_is_ours() -> None:
    assert all(plan_of(name) for name in LISTED)


@pytest.mark.parametrize("name", ["cifar_resnet8", "cifar_resnet18", "cifar_preact8", "wrn10_2"])
@pytest.mark.parametrize("size", [8, 16, 28, 32, 33])
@pytest.mark.parametrize("channels", [1, 3])
def test_forward_and_backward_at_any_size(name: str, size: int, channels: int) -> None:
    model = net(name, num_classes=7, channels=channels, width=0.25)
    scores = model(torch.randn(2, channels, size, size))
    assert scores.shape == (2, 7)
    scores.square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


@pytest.mark.parametrize("name", ["cifar_resnet20", "cifar_resnet18", "cifar_preact20", "wrn16_2"])
def test_zero_init_makes_blocks_the_identity_and_they_wake_up(name: str) -> None:
    torch.manual_seed(0)
    model = net(name, width=0.25)
    model.zero_init_last()
    kept_shape = [block for block in model.blocks if isinstance(block.shortcut, torch.nn.Identity)]
    assert kept_shape
    for block in kept_shape:
        assert isinstance(block, BasicBlock | PreactBlock)
        assert isinstance(block.conv1, torch.nn.Conv2d)
        maps = torch.rand(2, block.conv1.in_channels, 8, 8)  # not negative, as behind a relu
        expected = torch.relu(block.bn1(maps)) if isinstance(block, PreactBlock) and block.share else maps
        torch.testing.assert_close(block(maps), expected)

    model(torch.randn(4, 3, 16, 16)).square().sum().backward()
    for block in model.blocks:
        assert isinstance(block, BasicBlock | PreactBlock)
        gradient = block.last.weight.grad
        assert gradient is not None
        assert gradient.any(), "a block without gradient would stay at zero for ever"


def test_without_zero_init_no_weight_is_zero() -> None:
    assert all(p.any() for name, p in net("cifar_resnet20").named_parameters() if name.endswith("weight"))


def test_width_multiplies_channels() -> None:
    wide = net("cifar_resnet20", width=2)
    assert wide.fc.in_features == 128
    assert num_params(wide) > 3.9 * num_params(net("cifar_resnet20"))
    assert net("wrn10_1", width=0.5).fc.in_features == 32


def test_zero_padded_shortcut_keeps_old_channels_first() -> None:
    block = net("cifar_resnet8").blocks[1]
    assert isinstance(block, BasicBlock)
    maps = torch.rand(1, 16, 6, 6)
    shortcut = block.shortcut(maps)
    assert shortcut.shape == (1, 32, 3, 3)
    assert torch.equal(shortcut[:, :16], maps[:, :, ::2, ::2])
    assert not shortcut[:, 16:].any()


def test_dropout_acts_in_training_only() -> None:
    torch.manual_seed(0)
    images = torch.randn(2, 3, 16, 16)
    for model in (net("wrn16_1", dropout=0.5), net("wrn16_1", drop=0.5), net("wrn16_1", drop_path=0.9)):
        assert not torch.equal(model(images), model(images))
        model.eval()
        assert torch.equal(model(images), model(images))


def test_stochastic_depth_drops_whole_samples_and_keeps_the_mean() -> None:
    torch.manual_seed(0)
    kept = StochasticDepth(0.25)(torch.ones(4000, 2, 1, 1)).flatten(1)
    assert torch.equal(kept[:, 0], kept[:, 1])
    assert abs(kept.mean().item() - 1) < 0.05
    assert not StochasticDepth(1.0)(torch.ones(4, 1, 1, 1)).any()


def test_stochastic_depth_rises_from_none_to_the_rate() -> None:
    rates = [
        module.rate for module in net("cifar_resnet20", drop_path=0.4).modules() if isinstance(module, StochasticDepth)
    ]
    assert rates[0] == 0
    assert rates == sorted(rates)
    assert rates[-1] == pytest.approx(0.4)


@pytest.mark.parametrize(
    ("name", "valid", "remedy"),
    [
        ("cifar_resnet21", "6n+2: 8, 14, 20", "cifar_resnet20 or cifar_resnet26"),
        ("cifar_resnet2", "cifar_resnet18", "cifar_resnet8 or cifar_resnet14"),
        ("cifar_preact18", "6n+2", "cifar_preact14 or cifar_preact20"),
        ("wrn27_10", "6n+4: 10, 16, 22", "wrn22_10 or wrn28_10"),
        ("wrn4_4", "6n+4", "wrn10_4 or wrn16_4"),
    ],
)
def test_impossible_depth_names_possible_ones(name: str, valid: str, remedy: str) -> None:
    with pytest.raises(UserError) as raised:
        plan_of(name)
    assert valid in raised.value.why
    assert raised.value.remedy == remedy


@pytest.mark.parametrize("name", ["resnet18", "cifar_resnet", "cifar_resnet20_2", "wrn28", "wrn28_0", "wrn28_10.tag"])
def test_other_names_are_not_ours(name: str) -> None:
    assert plan_of(name) is None


def test_bad_option_values() -> None:
    with pytest.raises(UserError, match="width='wide'"):
        net("cifar_resnet20", width="wide")  # type: ignore[arg-type]
    with pytest.raises(UserError, match="width=0"):
        net("cifar_resnet20", width=0)
    with pytest.raises(UserError, match="dropout=2"):
        net("wrn16_1", dropout=2)
