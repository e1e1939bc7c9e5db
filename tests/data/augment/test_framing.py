"""Framings: boxes where they should be, drawn from (seed, epoch, index) alone, distributed as torchvision's."""

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from phalanx.config.schema import AugmentConfig, DataConfig
from phalanx.data.augment.framing import (
    CentreCrop,
    PadCrop,
    RandomResizedCrop,
    Sizes,
    Whole,
    eval_framing,
    train_framing,
)
from phalanx.data.base import Framing, View
from phalanx.data.sources.arrays import ArraySource, array_source
from phalanx.errors import UserError

Floats = npt.NDArray[np.float64]

RANDOM: list[Framing] = [
    PadCrop(32, 4, flip=0.5, seed=3),
    RandomResizedCrop(32, flip=0.5, seed=3),
    Whole(32, flip=0.5, seed=3),
    CentreCrop(32, flip=0.5, seed=3),
]


def sizes(height: int, width: int, count: int) -> Sizes:
    return np.tile(np.array([[height, width]], dtype=np.int64), (count, 1))


def arrays(height: int, width: int) -> ArraySource:
    images = np.zeros((4, height, width, 3), dtype=np.uint8)
    labels = np.zeros(4, dtype=np.int64)
    return array_source("made up", "made up", images, labels, ["a"], image_size=height, channels=None)


@pytest.mark.parametrize("framing", RANDOM, ids=lambda framing: type(framing).__name__)
def test_a_view_does_not_depend_on_its_company(framing: Framing) -> None:
    several = np.array([9, 4, 70_000, 1])
    together = framing.views(several, sizes(40, 60, 4), epoch=5)
    alone = [framing.views(several[i : i + 1], sizes(40, 60, 1), epoch=5)[0] for i in range(4)]
    assert together == alone
    assert framing.views(several, sizes(40, 60, 4), epoch=6) != together
    assert framing.views(several[:0], sizes(40, 60, 0), epoch=5) == []


@pytest.mark.parametrize("framing", RANDOM, ids=lambda framing: type(framing).__name__)
def test_flips_come_as_often_as_asked(framing: Framing) -> None:
    views = framing.views(np.arange(4000), sizes(32, 32, 4000), epoch=0)
    assert 0.46 < np.mean([view.flip for view in views]) < 0.54


@pytest.mark.parametrize(
    "framing",
    [
        PadCrop(32, 4, flip="alternate", seed=3),
        RandomResizedCrop(32, flip="alternate", seed=3),
        Whole(32, flip="alternate", seed=3),
        CentreCrop(32, flip="alternate", seed=3),
    ],
)
def test_alternating_flips_show_each_image_both_ways_in_two_epochs(framing: Framing) -> None:
    indices, sizes = np.arange(1000), np.full((1000, 2), 40)
    epochs = [np.array([view.flip for view in framing.views(indices, sizes, epoch)]) for epoch in range(1, 5)]
    assert 0.4 < epochs[0].mean() < 0.6
    assert (epochs[0] != epochs[1]).all()
    assert (epochs[0] == epochs[2]).all()
    assert (epochs[1] == epochs[3]).all()


def test_whole_is_the_identity_and_never_flips_unasked() -> None:
    assert Whole(32).views(np.arange(2), sizes(32, 32, 2), 0) == [View(0, 0, 32, 32)] * 2


@given(height=st.integers(1, 900), width=st.integers(1, 900), share=st.floats(0.05, 1.0))
@settings(deadline=None)
def test_centre_crop_is_a_centred_square_of_the_shorter_side(height: int, width: int, share: float) -> None:
    view = CentreCrop(224, share).views(np.arange(1), sizes(height, width, 1), 0)[0]
    assert view.height == view.width == pytest.approx(min(height, width) * share)
    assert view.top + view.height / 2 == pytest.approx(height / 2)
    assert view.left + view.width / 2 == pytest.approx(width / 2)


def test_pad_crop_moves_by_whole_pixels_evenly() -> None:
    views = PadCrop(32, 4).views(np.arange(9000), sizes(32, 32, 9000), 0)
    assert {(view.height, view.width) for view in views} == {(32.0, 32.0)}
    for places in ([view.top for view in views], [view.left for view in views]):
        moves, counts = np.unique(places, return_counts=True)
        assert moves.tolist() == list(range(-4, 5))
        assert counts.min() > 880  # of 1,000 expected
        assert counts.max() < 1120


def test_pad_counts_pixels_of_the_result() -> None:
    views = PadCrop(16, 4).views(np.arange(500), sizes(8, 8, 500), 0)
    assert {view.height for view in views} == {8.0}
    assert {view.top for view in views} == {move / 2 for move in range(-4, 5)}


@given(
    height=st.integers(1, 400),
    width=st.integers(1, 400),
    low=st.floats(0.01, 1.0),
    index=st.integers(0, 10**9),
)
@settings(deadline=None)
def test_resized_crops_stay_inside(height: int, width: int, low: float, index: int) -> None:
    view = RandomResizedCrop(32, (low, 1.0)).views(np.array([index]), sizes(height, width, 1), 0)[0]
    assert view.top >= 0
    assert view.left >= 0
    assert 1 <= view.height <= height - view.top
    assert 1 <= view.width <= width - view.left


@pytest.mark.parametrize(("height", "width"), [(300, 400), (40, 1000)])
def test_resized_crops_are_distributed_as_torchvisions(height: int, width: int) -> None:
    from torchvision.transforms.v2 import RandomResizedCrop as Theirs

    count = 1500
    views = RandomResizedCrop(224, seed=11).views(np.arange(count), sizes(height, width, count), 0)
    ours = np.array([[view.top, view.left, view.height, view.width] for view in views])
    image, theirs = torch.empty(1, height, width), Theirs(224)
    torch.manual_seed(0)
    drawn = [theirs.make_params([image]) for _ in range(count)]
    reference = np.array([[d["top"], d["left"], d["height"], d["width"]] for d in drawn], dtype=np.float64)

    for quantity in (_area, _aspect, _middle_down, _middle_across):
        assert _distance(quantity(ours), quantity(reference)) < 0.07  # at p = 0.001 two such samples differ by 0.071


def _area(boxes: Floats) -> Floats:
    return boxes[:, 2] * boxes[:, 3]


def _aspect(boxes: Floats) -> Floats:
    return boxes[:, 3] / boxes[:, 2]


def _middle_down(boxes: Floats) -> Floats:
    return boxes[:, 0] + boxes[:, 2] / 2


def _middle_across(boxes: Floats) -> Floats:
    return boxes[:, 1] + boxes[:, 3] / 2


def _distance(one: Floats, other: Floats) -> float:
    """Kolmogorov and Smirnov's: the largest difference of the two cumulative distributions."""
    places = np.sort(np.concatenate([one, other]))
    below = [np.searchsorted(np.sort(sample), places, side="right") / len(sample) for sample in (one, other)]
    return float(np.abs(below[0] - below[1]).max())


def test_resized_crop_falls_back_to_the_centre() -> None:
    """An area that no box of the wanted aspect can have: the largest centred box within the ratio."""
    framing = RandomResizedCrop(32, (1.0, 1.0))
    assert framing.views(np.arange(1), sizes(100, 900, 1), 0) == [View(0, 383, 100, 133)]
    assert framing.views(np.arange(1), sizes(900, 75, 1), 0) == [View(400, 0, 100, 75)]


def test_no_global_random_state_is_used() -> None:
    def views() -> list[list[View]]:
        return [framing.views(np.arange(20), sizes(40, 60, 20), 0) for framing in RANDOM]

    before, torch_state = views(), torch.get_rng_state()
    np.random.seed(123)
    expected = np.random.rand()
    np.random.seed(123)
    assert views() == before
    assert np.random.rand() == expected
    assert torch.equal(torch_state, torch.get_rng_state())


def test_the_configuration_chooses() -> None:
    data = DataConfig(interpolation="bicubic", crop_share=0.9)
    small = arrays(32, 32)

    def train(crop: str) -> Framing:
        augment = AugmentConfig.model_validate({"crop": crop, "flip": 0.5, "pad": 3, "pad_mode": "reflect"})
        return train_framing(augment, data, 32, 7, small)

    assert train("pad") == PadCrop(32, 3, "reflect", "bicubic", 0.5, 7)
    assert train("random-resized") == RandomResizedCrop(32, (0.08, 1.0), (0.75, 4 / 3), "bicubic", 0.5, 7)
    assert train("none") == Whole(32, "bicubic", 0.5, 7)
    assert eval_framing(data, 32, small) == Whole(32, "bicubic")


@pytest.mark.parametrize(
    ("height", "width", "size", "crops"),
    [(32, 32, 32, False), (8, 8, 16, False), (64, 64, 56, True), (48, 64, 64, True)],
)
def test_only_images_with_a_margin_are_cropped(height: int, width: int, size: int, crops: bool) -> None:
    framing = eval_framing(DataConfig(), size, arrays(height, width))
    assert framing == (CentreCrop(size, 0.875) if crops else Whole(size))


@pytest.mark.parametrize(
    ("augment", "what"),
    [
        (AugmentConfig(crop="pad", pad=32, pad_mode="reflect"), "augment.pad 32 is too much to reflect"),
        (AugmentConfig(crop="random-resized", scale=(1.0, 0.1)), "augment.scale runs from 1 down to 0.1"),
    ],
)
def test_what_cannot_be_done_is_refused(augment: AugmentConfig, what: str) -> None:
    with pytest.raises(UserError, match=what):
        train_framing(augment, DataConfig(), 32, 0, arrays(32, 32))
