"""What the model sees of a micro-batch: normalised bytes, and random changes that depend on the sample alone."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from phalanx.config.schema import AugmentConfig, MachineConfig
from phalanx.data.base import MicroBatch
from phalanx.engine.inputs import Inputs, Sizes
from phalanx.machine.settings import choose

MEAN, STD = [0.5, 0.4, 0.3], [0.25, 0.2, 0.1]
PIXELS = torch.randint(0, 256, (6, 3, 12, 12), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
LABELS = torch.tensor([0, 1, 2, 3, 0, 1])
INDICES = torch.tensor([7, 3, 9, 1, 4, 8])


def inputs(augment: dict[str, float] | None = None, sizes: Sizes = (), channels_last: bool = True) -> Inputs:
    settings = choose(MachineConfig(device="cpu", channels_last=channels_last, fast_path="off"))
    return Inputs(settings, AugmentConfig.model_validate(augment or {}), MEAN, STD, seed=5, sizes=sizes)


def micro(rows: list[int] | None = None, number: int = 0) -> MicroBatch:
    chosen = list(range(6)) if rows is None else rows
    return MicroBatch(number, PIXELS[chosen].clone(), LABELS[chosen], INDICES[chosen])


def normalised(pixels: Tensor) -> Tensor:
    mean, std = (torch.tensor(each)[:, None, None] for each in (MEAN, STD))
    return (pixels.float() / 255 - mean) / std


@pytest.mark.parametrize("channels_last", [True, False])
def test_bytes_are_normalised_by_channel(channels_last: bool) -> None:
    batch = micro()
    images, labels = inputs(channels_last=channels_last).plain(batch)
    torch.testing.assert_close(images, normalised(PIXELS), rtol=1e-5, atol=1e-5)
    layout = torch.channels_last if channels_last else torch.contiguous_format
    assert images.is_contiguous(memory_format=layout)
    assert torch.equal(labels, LABELS)
    trained, targets = inputs(channels_last=channels_last).training(batch, epoch=0, start=0, step=0)
    assert torch.equal(trained, images)  # nothing else is configured
    assert targets.other_labels is None


def test_sizes_end_at_their_steps_and_validation_has_whole_images() -> None:
    made = inputs(sizes=((2, 6), (5, 9)))
    seen = [made.training(micro(), 0, 0, step)[0].shape[-1] for step in range(7)]
    assert seen == [6, 6, 9, 9, 9, 12, 12]
    assert made.plain(micro())[0].shape[-1] == 12


def test_erasing_depends_on_the_sample_and_the_epoch() -> None:
    made = inputs({"erase": 1.0})
    images, _ = made.training(micro(), epoch=2, start=0, step=0)
    erased = (images == 0).all(1).flatten(1).any(1)
    assert bool(erased.all())
    rows = [4, 0, 5]  # elsewhere in another batch, at another step
    again, _ = made.training(micro(rows, number=3), epoch=2, start=30, step=9)
    assert torch.equal(again, images[rows])
    assert not torch.equal(made.training(micro(), epoch=3, start=0, step=0)[0], images)


@pytest.mark.parametrize("augment", [{"mixup": 0.4}, {"cutmix": 1.0}, {"mixup": 0.4, "cutmix": 1.0, "erase": 0.5}])
def test_mixing_depends_on_the_place_of_the_micro_batch(augment: dict[str, float]) -> None:
    made = inputs(augment)
    batch = micro()
    images, targets = made.training(batch, epoch=1, start=8, step=3)
    assert torch.equal(batch.images, PIXELS)  # the bytes stay as they were
    assert targets.other_labels is not None
    assert torch.equal(targets.other_labels, LABELS.flip(0))
    assert 0 <= targets.lam <= 1
    torch.manual_seed(99)  # no generator of torch's has a part in it, nor has the step's number
    again, same = made.training(micro(), epoch=1, start=8, step=7)
    assert torch.equal(again, images)
    assert same.lam == targets.lam
    shares = {made.training(micro(number=number), epoch, start, 0)[1].lam for number, epoch, start in PLACES}
    assert len(shares) > 1


PLACES = [(0, 1, 8), (1, 1, 8), (0, 2, 8), (0, 1, 16)]


def test_mixup_is_a_weighted_sum_with_the_batch_in_reverse() -> None:
    images, targets = inputs({"mixup": 0.4}).training(micro(), epoch=0, start=0, step=0)
    plain = normalised(PIXELS)
    torch.testing.assert_close(images, targets.lam * plain + (1 - targets.lam) * plain.flip(0), rtol=1e-4, atol=1e-4)


def test_mixing_ends_at_its_step_and_leaves_some_micro_batches_alone() -> None:
    made = replace(inputs({"mixup": 1.0}), mix_until=3)
    mixed = [made.training(micro(), 0, 0, step)[1].other_labels is not None for step in range(5)]
    assert mixed == [True, True, True, False, False]
    some = inputs({"mixup": 1.0, "mix_probability": 0.3})
    chosen = [some.training(micro(), 0, 8 * start, 0)[1].other_labels is not None for start in range(400)]
    assert 0.2 < sum(chosen) / 400 < 0.4
    assert chosen == [some.training(micro(), 0, 8 * start, 7)[1].other_labels is not None for start in range(400)]


def test_the_switch_chooses_between_mixup_and_cutmix() -> None:
    both = {"mixup": 1.0, "cutmix": 1.0}
    for switch, alone in ((1.0, "cutmix"), (0.0, "mixup")):
        one, targets = inputs(both | {"mix_switch": switch}).training(micro(), 0, 0, 0)
        other, expected = inputs({alone: 1.0}).training(micro(), 0, 0, 0)
        assert torch.equal(one, other)
        assert targets.lam == expected.lam
