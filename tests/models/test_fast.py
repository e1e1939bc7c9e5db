"""cifar_fast: a first layer that whitens, convolutions that begin as the identity, any size from 9 up."""

import pytest
import torch
from torch.nn import functional as F

from phalanx.config.schema import ModelConfig
from phalanx.errors import UserError
from phalanx.models.build import build_model
from phalanx.models.fast import FastNet, ShiftNorm, Stage, build_fast

pytestmark = pytest.mark.numeric


def net(size: int = 32, channels: int = 3, width: float = 0.25) -> FastNet:
    return build_fast(num_classes=7, channels=channels, image_size=size, width=width)


def test_patches_leave_the_first_layer_uncorrelated() -> None:
    torch.manual_seed(0)
    # neighbouring pixels alike, as in photographs
    images = F.avg_pool2d(torch.randn(64, 3, 20, 20), 3, stride=1) * 3
    model = net()
    model.fit_whitening(images)
    whitening = model.get_buffer("whitening")
    answers = F.conv2d(images, whitening).permute(1, 0, 2, 3).flatten(1)
    moments = answers @ answers.T / answers.shape[1]
    assert torch.allclose(moments, torch.eye(12), atol=0.05)


def test_the_first_layer_is_not_learned() -> None:
    model = net()
    model(torch.randn(4, 3, 32, 32)).square().sum().backward()
    assert "whitening" not in dict(model.named_parameters())
    assert "whitening" in model.state_dict()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


@pytest.mark.parametrize("size", [9, 16, 28, 33])
@pytest.mark.parametrize("channels", [1, 3])
def test_any_size_and_channels(size: int, channels: int) -> None:
    assert net(size, channels)(torch.randn(2, channels, size, size)).shape == (2, 7)


@pytest.mark.parametrize(("edge", "sides"), [(False, [15, 7, 3]), (True, [16, 8, 4])])
def test_with_its_edge_maps_fill_whole_tiles(edge: bool, sides: list[int]) -> None:
    model = build_fast(num_classes=7, channels=3, image_size=32, width=0.25, edge=edge)
    seen: list[int] = []
    for stage in model.stages:
        stage.register_forward_hook(lambda module, args, maps: seen.append(maps.shape[-1]))
    model(torch.randn(2, 3, 32, 32))
    assert seen == sides


def test_convolutions_begin_as_the_identity() -> None:
    maps = torch.rand(1, 8, 6, 6)
    assert torch.equal(Stage(8, 12).conv1(maps)[:, :8], maps)


def test_a_shift_learns_64_times_as_fast_as_a_weight() -> None:
    norm = ShiftNorm(3)
    before = norm(torch.randn(8, 3, 4, 4)).detach()
    optimizer = torch.optim.SGD(norm.parameters(), lr=0.01)
    norm(torch.randn(8, 3, 4, 4)).sum((0, 2, 3)).mean().backward()
    slope = 8 * 4 * 4 / 3  # of the loss by what is added to a channel
    optimizer.step()
    torch.manual_seed(1)
    shifted = norm(torch.randn(8, 3, 4, 4)).mean() - before.mean()
    assert shifted.item() == pytest.approx(-64 * 0.01 * slope, rel=1e-3)


def test_eval_uses_running_statistics() -> None:
    norm = ShiftNorm(3)
    for _ in range(50):
        norm(torch.randn(64, 3, 4, 4) * 2 + 5)
    norm.eval()
    answer = norm(torch.full((1, 3, 1, 1), 7.0))
    assert answer.flatten().tolist() == pytest.approx([1.0] * 3, abs=0.1)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"width": 0}, "above 0"),
        ({"edge": 3}, "neither true nor false"),
        ({"depth": 3}, "no such option"),
        ({"dropout": 0.1}, "no such option"),
    ],
)
def test_bad_options_are_refused(options: dict[str, float], says: str) -> None:
    config = ModelConfig(name="cifar_fast", options=options)
    with pytest.raises(UserError, match=says):
        build_model(config, num_classes=10, channels=3, image_size=32)


def test_small_images_are_refused_with_the_size_that_works() -> None:
    with pytest.raises(UserError) as refused:
        net(size=8)
    assert "data.image_size=9" in str(refused.value.remedy)
