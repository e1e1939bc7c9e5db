"""On the device: normalising, erasing, mixup and cutmix, each with targets that fit the pixels."""

import numpy as np
import pytest
import torch

from phalanx.config.schema import AugmentConfig
from phalanx.data.augment.mixing import Targets, erase, mix, to_input

MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]


def batch(count: int, size: int = 8, channels: int = 3) -> torch.Tensor:
    pixels = np.random.default_rng(count).integers(0, 256, (count, size, size, channels), dtype=np.uint8)
    return torch.from_numpy(pixels).permute(0, 3, 1, 2)


def levels(count: int, size: int = 16) -> torch.Tensor:
    """Image i is i everywhere, so that a pixel tells where it comes from."""
    return (
        torch.arange(float(count))[:, None, None, None]
        .expand(count, 3, size, size)
        .contiguous(memory_format=torch.channels_last)
    )


def mixed(inputs: torch.Tensor, augment: AugmentConfig, epoch: int = 0, start: int = 0, number: int = 0) -> Targets:
    return mix(inputs, torch.arange(len(inputs)), augment, 7, epoch, start, number)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("count", [0, 1, 5])
def test_inputs_are_normalised_and_keep_channels_last(count: int, channels: int) -> None:
    images, mean, std = batch(count, 8, channels), MEAN[:channels], STD[:channels]
    inputs = to_input(images, mean, std)
    expected = (images.double() / 255 - torch.tensor(mean)[:, None, None]) / torch.tensor(std)[:, None, None]
    assert inputs.dtype == torch.float32
    assert inputs.shape == images.shape
    assert inputs.is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(inputs.double(), expected, atol=1e-6, rtol=0)


def test_inputs_in_other_types_and_layouts() -> None:
    images = batch(4)
    exact = to_input(images, MEAN, STD)
    assert torch.equal(to_input(images, MEAN, STD, torch.bfloat16), exact.to(torch.bfloat16))
    planes = to_input(images.contiguous(), MEAN, STD, memory_format=torch.contiguous_format)
    assert planes.is_contiguous()
    assert torch.equal(planes, exact)


def test_a_wrong_number_of_statistics_is_refused() -> None:
    with pytest.raises(ValueError, match="1 channels need as many means and deviations, not 3 and 3"):
        to_input(batch(1, 8, 1), MEAN, STD)


def test_erasing_is_pure_and_leaves_rectangles() -> None:
    indices = np.arange(1000, 1400)
    inputs = torch.ones(400, 3, 20, 20)
    erase(inputs, indices, 0.25, seed=1, epoch=2)
    again = torch.ones(3, 3, 20, 20)
    erase(again, indices[[7, 300, 41]], 0.25, seed=1, epoch=2)
    assert torch.equal(again, inputs[[7, 300, 41]])

    gone = inputs == 0
    hit = gone.flatten(1).any(1)
    assert 0.18 < hit.float().mean() < 0.32
    assert torch.equal(gone[:, 0], gone[:, 2])
    for mask in gone[hit][:, 0]:
        rows, columns = mask.any(1), mask.any(0)
        assert torch.equal(mask, rows[:, None] & columns[None, :])  # one rectangle
        assert 0.01 < mask.float().mean() < 0.37  # 2-33 %, up to rounding
    shares = gone[hit][:, 0].float().mean(dim=(1, 2))
    assert 0.14 < shares.mean() < 0.21  # even over 2-33 %: 17.5 %


def test_erasing_never_or_always() -> None:
    inputs = torch.ones(50, 1, 16, 16)
    erase(inputs, np.arange(50), 0.0, 0, 0)
    assert bool((inputs == 1).all())
    erase(inputs, np.arange(50), 1.0, 0, 0)
    assert bool((inputs == 0).flatten(1).any(1).all())
    tiny = torch.ones(1, 1, 1, 1)
    erase(tiny, np.arange(1), 1.0, 0, 0)  # no rectangle is smaller than one pixel


@pytest.mark.parametrize("count", [2, 5, 8])
def test_mixup_targets_fit_the_pixels(count: int) -> None:
    inputs = levels(count)
    targets = mixed(inputs, AugmentConfig(mixup=0.8))
    assert targets.other_labels is not None
    expected = targets.lam * targets.labels + (1 - targets.lam) * targets.other_labels
    torch.testing.assert_close(inputs, expected[:, None, None, None].expand_as(inputs), atol=1e-5, rtol=0)
    assert targets.labels.tolist() == list(range(count))
    assert targets.other_labels.tolist() == list(reversed(range(count)))
    assert inputs.is_contiguous(memory_format=torch.channels_last)


def test_cutmix_lambda_is_the_area_that_is_left() -> None:
    for start in range(40):
        inputs = levels(4)
        targets = mixed(inputs, AugmentConfig(cutmix=1.0), start=start)
        assert targets.other_labels is not None
        own = inputs == targets.labels[:, None, None, None]
        other = inputs == targets.other_labels[:, None, None, None]
        assert bool((own ^ other).all())
        for mask in own[:, 0]:
            assert mask.float().mean().item() == pytest.approx(targets.lam)
            rows, columns = (~mask).any(1), (~mask).any(0)
            assert torch.equal(~mask, rows[:, None] & columns[None, :])


def test_mixing_is_a_pure_function_of_its_place() -> None:
    both = AugmentConfig(mixup=0.2, cutmix=1.0)
    torch.manual_seed(1)
    first = levels(6)
    targets, state = mixed(first, both, 3, 640, 2), torch.get_rng_state()
    torch.manual_seed(2)
    np.random.seed(2)
    again = levels(6)
    assert mixed(again, both, 3, 640, 2).lam == targets.lam
    assert torch.equal(first, again)
    torch.manual_seed(1)
    assert torch.equal(state, torch.get_rng_state())
    lams = {mixed(levels(6), both, *place).lam for place in ((3, 640, 2), (4, 640, 2), (3, 768, 2), (3, 640, 3))}
    assert len(lams) == 4


def test_lambda_follows_its_beta_and_both_are_used_alike() -> None:
    lams = np.array([mixed(levels(2, 2), AugmentConfig(mixup=0.4), start=start).lam for start in range(1500)])
    assert lams.mean() == pytest.approx(0.5, abs=0.04)
    assert lams.var() == pytest.approx(0.25 / 1.8, abs=0.015)  # Beta(a, a): 1 / (4 (2 a + 1))

    num_cutmix = 0
    for start in range(400):
        inputs = levels(2)
        mixed(inputs, AugmentConfig(mixup=0.8, cutmix=1.0), start=start)
        num_cutmix += bool(torch.isin(inputs, torch.tensor([0.0, 1.0])).all())  # whole pixels, none blended
    assert 160 < num_cutmix < 240


@pytest.mark.parametrize("count", [0, 1])
def test_what_has_no_partner_is_left_alone(count: int) -> None:
    inputs = levels(count)
    targets = mixed(inputs, AugmentConfig(mixup=0.8, cutmix=1.0))
    assert targets.other_labels is None
    assert targets.lam == 1.0
    assert torch.equal(inputs, levels(count))


def test_off_means_off() -> None:
    inputs = levels(4)
    assert mixed(inputs, AugmentConfig()).other_labels is None
    assert torch.equal(inputs, levels(4))
