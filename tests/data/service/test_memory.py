"""Memory is bounded on both sides: a trainer's slots come back, and a server makes no more than trainers take."""

import threading
from pathlib import Path

import numpy as np
import pytest
import torch

from phalanx.data.order import Work
from phalanx.data.service import batch_workers
from phalanx.data.service.batch_workers import BatchRequest, BatchWorkers, FinishedBatch
from phalanx.data.service.session import Session
from phalanx.data.service.slots import Slots
from phalanx.net.control import Refused
from tests.data.service.servers import configured, pipeline_of
from tests.waiting import until


def test_a_slot_is_free_when_no_tensor_over_it_is_left() -> None:
    slots = Slots(window=1, slot_bytes=8)
    taken = [slots.take() for _ in range(4)]
    assert sorted(slot for slot in taken if slot is not None) == [0, 1, 2, 3]
    assert slots.take() is None
    pixels = slots.pixels(2, 6)
    part = pixels.view(2, 3)[1]
    assert slots.hand_out()
    del pixels
    assert slots.take() is None, "a part of it is still in use"
    del part
    assert slots.take() == 2
    with pytest.raises(Refused, match="length"):
        slots.pixels(0, 9)


def test_a_trainer_that_keeps_its_batches_gets_copies() -> None:
    slots = Slots(window=2, slot_bytes=8)
    kept: list[torch.Tensor] = []
    free_of_slot = 0
    for _ in range(20):
        slot = slots.take()
        assert slot is not None, "what is kept must not stop what is to come"
        pixels = slots.pixels(slot, 8)
        pixels.fill_(len(kept))
        if slots.hand_out():
            kept.append(pixels)
        else:
            kept.append(pixels.clone())
            free_of_slot += 1
        del pixels
    assert free_of_slot == 17
    assert [int(pixels[0]) for pixels in kept] == list(range(20))


def test_a_server_rests_while_its_batches_wait_for_the_network(
    photographs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = pipeline_of(configured(photographs))
    batch_bytes = 4 * 24 * 24 * 3
    monkeypatch.setattr(batch_workers, "MAX_UNSENT_BYTES", 3 * batch_bytes)
    done: list[FinishedBatch] = []
    changed = threading.Condition()

    def finished(one: FinishedBatch) -> None:
        with changed:
            done.append(one)
            changed.notify()

    session = Session(1, b"x", "trainer", None, 0, None)
    work = Work(0, 0, ((0, np.arange(4)),), 4, last=False)
    workers = BatchWorkers(pipeline, None, finished)
    try:
        for number in range(12):
            workers.add(BatchRequest(session, number, work, -1, None))
        until(lambda: len(done) >= 3)
        with changed:
            changed.wait(0.3)
        assert 3 <= len(done) <= 4, "one more may have been begun"
        assert workers.waiting == 12 - len(done)
        for one in list(done):
            workers.sent(one.num_bytes)
        until(lambda: len(done) >= 6)
        workers.forget(session)
        assert workers.waiting == 0
        assert all(torch.equal(one.pixels, done[0].pixels) for one in done if one.pixels is not None)  # type: ignore[arg-type]
    finally:
        workers.close()
