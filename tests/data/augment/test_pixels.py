"""Pixel operations: torchvision's table and kernels, our draws."""

import math
import re
from collections import Counter
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import ndimage

import phalanx.data
from phalanx.config.schema import AugmentConfig
from phalanx.data.augment.pixels import (
    NUM_BINS,
    ColourJitter,
    PixelOps,
    Rotate,
    Space,
    Strengths,
    _apply,
    pixel_ops,
    randaugment_space,
    trivialaugment_space,
)
from phalanx.data.random import uniform

CONFIGS = {
    "randaugment": AugmentConfig(policy="randaugment", policy_ops=3, policy_magnitude=12),
    "trivialaugment": AugmentConfig(policy="trivialaugment"),
    "jitter": AugmentConfig(brightness=0.4, contrast=0.3, saturation=0.5, hue=0.1),
    "rotation": AugmentConfig(rotate=25),
    "reflected rotation": AugmentConfig(rotate=180, pad_mode="reflect"),
    "all": AugmentConfig(rotate=10, policy="randaugment", hue=0.1),
    "both": AugmentConfig(policy="randaugment", brightness=0.4),
}


def pictures(count: int, size: int = 16, channels: int = 3) -> torch.Tensor:
    """Smooth images with some noise, channels last in memory as the pipeline makes them."""
    noise = np.random.default_rng(0)
    waves = np.sin(np.arange(size) / 3)[None, :, None, None] * np.cos(np.arange(size) / 5)[None, None, :, None]
    images = (
        128
        + 90 * waves * noise.uniform(0.5, 1, (count, 1, 1, channels))
        + noise.normal(0, 10, (count, size, size, channels))
    )
    return torch.from_numpy(images.clip(0, 255).astype(np.uint8)).permute(0, 3, 1, 2)


def configured(name: str, seed: int = 1) -> PixelOps:
    ops = pixel_ops(CONFIGS[name], seed)
    assert ops is not None
    return ops


@pytest.mark.parametrize("size", [16, 32, 224, 331])
def test_operations_and_strengths_are_torchvisions(size: int) -> None:
    from torchvision.transforms import v2

    for ours, policy in ((randaugment_space(size), v2.RandAugment), (trivialaugment_space(), v2.TrivialAugmentWide)):
        theirs: Space = {}
        for name, (strengths, signed) in policy._AUGMENTATION_SPACE.items():
            values = strengths(NUM_BINS, size, size)
            theirs[name] = Strengths(signed=signed) if values is None else Strengths(tuple(values.tolist()), signed)
        assert ours == theirs
        assert list(ours) == list(theirs)  # in the same order


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("name", list(randaugment_space(32)))
def test_each_operation_does_what_torchvisions_does(name: str, channels: int) -> None:
    from torchvision.transforms import v2

    if name == "Identity":
        return
    theirs = v2.RandAugment()
    images = pictures(2, 32, channels).contiguous()
    for space in (randaugment_space(32), trivialaugment_space()):
        for strength in (space[name].values[0], space[name].values[13], -space[name].values[29]):
            if strength < 0 and not space[name].signed:
                continue
            expected = theirs._apply_image_or_video_transform(images, name, strength, "nearest", {torch.Tensor: None})
            assert torch.equal(_apply(name, strength, images), expected)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("name", CONFIGS)
def test_a_sample_does_not_depend_on_its_company(name: str, channels: int) -> None:
    images, indices, ops = pictures(24, 16, channels), np.arange(100, 124), configured(name)
    together = ops(images, indices, 3)
    alone = torch.cat([ops(images[i : i + 1], indices[i : i + 1], 3) for i in range(24)])
    assert torch.equal(together, alone)
    assert not torch.equal(together, ops(images, indices, 4))
    assert not torch.equal(together, configured(name, seed=2)(images, indices, 3))
    assert together.dtype == torch.uint8
    assert together.shape == images.shape


@pytest.mark.parametrize("name", CONFIGS)
def test_the_given_images_stay_and_no_global_state_is_used(name: str) -> None:
    images, indices, ops = pictures(8), np.arange(8), configured(name)
    kept = images.clone()
    torch.manual_seed(1)
    first, state = ops(images, indices, 0), torch.get_rng_state()
    torch.manual_seed(2)
    assert torch.equal(first, ops(images, indices, 0))
    torch.manual_seed(1)
    assert torch.equal(state, torch.get_rng_state())
    assert torch.equal(images, kept)
    assert ops(images[:0], indices[:0], 0).shape == (0, 3, 16, 16)


def test_operations_and_signs_are_drawn_evenly() -> None:
    """One picture many times: each operation shows its own result, each sign of it half as often."""
    images = pictures(1, 24).repeat(2800, 1, 1, 1)
    ops = pixel_ops(AugmentConfig(policy="randaugment", policy_ops=1, policy_magnitude=30), 0)
    assert ops is not None
    counts = sorted(Counter(image.numpy().tobytes() for image in ops(images, np.arange(2800), 0)).values())
    signed, unsigned = counts[:18], counts[18:]
    assert len(unsigned) == 5  # Identity, Posterize, Solarize, AutoContrast, Equalize
    assert signed[0] > 70
    assert signed[-1] < 130
    assert unsigned[0] > 160
    assert unsigned[-1] < 240


def test_jitter_draws_within_its_ranges() -> None:
    grey = torch.full((400, 1, 2, 2), 100, dtype=torch.uint8)
    bright = grey.clone()
    ColourJitter(0.4, 0.0, 0.0, 0.0, seed=0)(bright, np.arange(400), 0)
    levels = bright[:, 0, 0, 0].tolist()
    assert 60 <= min(levels) < 65
    assert 135 < max(levels) <= 140


def test_jitter_applies_torchvisions_kernels_in_an_order_drawn_per_sample() -> None:
    from torchvision.transforms.v2 import functional as kernels

    before = pictures(30)
    after = before.contiguous()
    ColourJitter(0.4, 0.3, 0.5, 0.1, seed=5)(after, np.arange(30), epoch=2)
    draws = uniform(5, "colour jitter", 2, np.arange(30), 8)[:, 4:]
    lows, widths = np.array([0.6, 0.7, 0.5, -0.1]), np.array([0.8, 0.6, 1.0, 0.2])
    steps = (kernels.adjust_brightness, kernels.adjust_contrast, kernels.adjust_saturation, kernels.adjust_hue)
    orders = set()
    for sample in range(30):
        amounts = (lows + draws[sample] * widths).tolist()
        for order in permutations(range(4)):
            image = before[sample]
            for k in order:
                image = steps[k](image, amounts[k])
            if torch.equal(image, after[sample]):
                orders.add(order)
                break
        else:
            pytest.fail(f"sample {sample} is no order of the four")
    assert len(orders) > 10


@pytest.mark.parametrize("mode", ["zero", "reflect"])
@pytest.mark.parametrize(("size", "channels"), [(33, 3), (16, 1), (2, 1)])
def test_rotation_is_what_scipy_computes(size: int, channels: int, mode: str) -> None:
    """Interpolated linearly about the centre; outside is black, or the image without its edge repeated."""
    images, indices = pictures(12, size, channels), np.arange(50, 62)
    turned = Rotate(40, mode, seed=3)
    changed = PixelOps((turned,))(images, indices, 2)
    outside = {"zero": "grid-constant", "reflect": "mirror"}[mode]
    centre = np.full(2, (size - 1) / 2)
    draws = uniform(3, "rotate", 2, indices)[:, 0]
    for image, result, draw in zip(images.numpy(), changed.numpy(), draws, strict=True):
        angle = math.radians((2 * draw - 1) * 40)
        # From places of the result to places of the image: rows point down, and the image turns counter-clockwise.
        matrix = np.array([[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]])
        for before, after in zip(image, result, strict=True):
            expected = ndimage.affine_transform(
                before.astype(np.float64), matrix, centre - matrix @ centre, order=1, mode=outside
            )
            assert np.abs(expected - after).max() < 0.51


def test_rotation_draws_evenly_within_its_range() -> None:
    """One bright pixel tells by how much its image was turned."""
    images = torch.zeros(2000, 1, 65, 65, dtype=torch.uint8)
    images[:, :, 31:34, 59:62] = 255
    changed = PixelOps((Rotate(30, "zero", seed=0),))(images, np.arange(2000), 0)[:, 0].double()
    places = torch.arange(65, dtype=torch.float64) - 32
    rows = (changed.sum(2) * places).sum(1)
    columns = (changed.sum(1) * places).sum(1)
    angles = np.degrees(np.arctan2(-rows.numpy(), columns.numpy()))
    assert np.abs(angles).max() < 30.5
    counts, _ = np.histogram(angles, bins=6, range=(-30, 30))
    assert counts.min() > 270
    assert counts.max() < 400


def test_nothing_configured_is_none() -> None:
    assert pixel_ops(AugmentConfig(), 0) is None


def test_no_file_of_the_package_imports_torchvision_at_its_top() -> None:
    """It takes seconds, and most runs do not need it."""
    for path in Path(phalanx.data.__path__[0]).glob("*.py"):
        assert not re.search(r"^(import|from) torchvision", path.read_text(), re.MULTILINE), path
