"""Leases and batches as bytes: whole there and back, and refused when they are not."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from phalanx.data.base import MicroBatch
from phalanx.data.order import Share, Work, epoch_work
from phalanx.data.service.body import pack_batch, pack_lease, slot_bytes, unpack_batch, unpack_lease
from phalanx.net.control import Refused

WORK = Work(7, 100, ((2, np.array([5, 1])), (3, np.array([0, 9, 4]))), 20, last=True)


def micro_batches() -> list[MicroBatch]:
    generator = torch.Generator().manual_seed(0)
    made = []
    for number, count in ((2, 2), (3, 3)):
        images = torch.randint(256, (count, 4, 5, 3), dtype=torch.uint8, generator=generator).permute(0, 3, 1, 2)
        made.append(MicroBatch(number, images, torch.arange(count), torch.arange(count) + 10))
    return made


def test_a_lease_has_the_epoch_and_the_samples() -> None:
    lease = unpack_lease(memoryview(pack_lease(WORK)), 10)
    assert lease.epoch == 7
    assert [(number, indices.tolist()) for number, indices in lease.micro] == [(2, [5, 1]), (3, [0, 9, 4])]
    with pytest.raises(Refused, match="samples"):
        unpack_lease(memoryview(pack_lease(WORK)), 9)


def test_repeats_of_samples_are_leased_where_there_are_some() -> None:
    work = Work(7, 100, ((0, np.array([5, 15, 99])),), 3, last=True)  # repeats of the sample 5 and of the sample 9
    assert unpack_lease(memoryview(pack_lease(work)), 10, repeats=True).micro[0][1].tolist() == [5, 15, 99]
    for num_samples, repeats in ((10, False), (9, True)):
        with pytest.raises(Refused, match="samples"):
            unpack_lease(memoryview(pack_lease(work)), num_samples, repeats=repeats)


def test_a_batch_comes_back_as_it_was() -> None:
    before, bad = micro_batches(), [(3, "truncated"), (4, "kein Bild: ü")]
    packed = pack_batch(before, bad)
    after, bad_after = unpack_batch(memoryview(packed.control), packed.pixels)
    assert bad_after == bad
    for one, other in zip(before, after, strict=True):
        assert one.number == other.number
        assert one.images.stride() == other.images.stride()
        for name in ("images", "labels", "indices"):
            assert torch.equal(getattr(one, name), getattr(other, name))


def test_several_labels_come_back_as_they_were() -> None:
    before = micro_batches()
    for each in before:
        each.labels = torch.randint(2, (each.count, 11), generator=torch.Generator().manual_seed(each.number))
    packed = pack_batch(before, [])
    after, _ = unpack_batch(memoryview(packed.control), packed.pixels)
    for one, other in zip(before, after, strict=True):
        assert torch.equal(one.labels, other.labels)
        assert torch.equal(one.indices, other.indices)


def test_the_pixels_of_a_single_micro_batch_are_not_copied() -> None:
    micro = micro_batches()[:1]
    assert pack_batch(micro, []).pixels.data_ptr() == micro[0].images.data_ptr()


@given(st.data())
def test_damaged_bytes_are_refused_or_harmless(data: st.DataObject) -> None:
    """Whatever has the key may still be broken: no crash, and no memory beyond what has arrived."""
    packed = pack_batch(micro_batches(), [(3, "truncated")])
    several = micro_batches()
    for each in several:
        each.labels = torch.ones(each.count, 5, dtype=torch.int64)
    of_several = pack_batch(several, [])
    for control, unpack in (
        (pack_lease(WORK), lambda control: unpack_lease(control, 10)),
        (packed.control, lambda control: unpack_batch(control, packed.pixels)),
        (of_several.control, lambda control: unpack_batch(control, of_several.pixels)),
    ):
        broken = bytearray(control[: data.draw(st.integers(0, len(control)))])
        if broken:
            broken[data.draw(st.integers(0, len(broken) - 1))] = data.draw(st.integers(0, 255))
        try:
            unpack(memoryview(bytes(broken)))
        except Refused:
            continue


@pytest.mark.parametrize("share", [Share(), Share(1, 3), Share(0, 2, 3), Share(2, 3, micro_batches=4)])
def test_a_slot_holds_any_batch_of_an_epoch(share: Share) -> None:
    for samples in range(40, 60):
        works = list(epoch_work(0, 0, samples, 12, False, share))
        assert max(work.samples for work in works) * 5 <= slot_bytes(12, share, 5)
