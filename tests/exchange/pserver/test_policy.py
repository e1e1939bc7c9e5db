"""When pushes become an update: the decisions, and what an update does with empty and void pushes."""

import torch
from torch import Tensor

from phalanx.exchange.pserver.policy import Async, Push, Sync, make_policy
from phalanx.exchange.pserver.slice_state import SliceState
from phalanx.exchange.pserver.slices import Layout, cut
from tests.exchange.pserver.pserver_jobs import SCHEDULE, optim


def push(rank: int, gradient: list[float] | None, step: int = 10, based_on: int = 0, void: bool = False) -> Push:
    gradients: list[Tensor | None] = [None if gradient is None else torch.tensor(gradient)]
    return Push(rank, 1, step, based_on, gradients, void)


def held() -> SliceState:
    layouts = {"w": Layout((2,), (1,))}
    config = optim("momentum=0", "weight_decay=0")
    return SliceState(cut({"w": 2}, 1)[0], torch.zeros(16), layouts, set(), config, SCHEDULE)


def test_sync_waits_for_all_and_sums_in_rank_order() -> None:
    slice_, policy = held(), Sync()
    # in float32, (1e8 + 1) - 1e8 is not 1e8 - 1e8 + 1: the order of the sum shows
    for rank, value in ((2, -1e8), (0, 1e8)):
        slice_.arrive(push(rank, [value, 0.0]))
        assert policy.due(slice_.arrived, {0, 1, 2}) == []
    slice_.arrive(push(1, [1.0, 0.0]))
    due = policy.due(slice_.arrived, {0, 1, 2})
    assert [each.rank for each in due] == [0, 1, 2]
    slice_.apply(due, policy)
    assert slice_.memory[0] == 0.0
    assert slice_.version == 1
    assert {each.rate for each in due} == {SCHEDULE(10)}


def test_empty_pushes_count_as_arrived_and_add_nothing() -> None:
    slice_ = held()
    for rank, gradient in ((0, None), (1, [1.0, 2.0])):
        slice_.arrive(push(rank, gradient))
    slice_.apply([slice_.arrived[0], slice_.arrived[1]], Sync())
    assert slice_.memory[:2].tolist() == torch.tensor([-SCHEDULE(10), -2 * SCHEDULE(10)]).tolist()


def test_a_void_push_makes_the_step_void_for_all() -> None:
    slice_ = held()
    slice_.arrive(push(0, [1.0, 2.0]))
    slice_.arrive(push(1, None, step=-1, void=True))
    slice_.apply([slice_.arrived[0], slice_.arrived[1]], Sync())
    assert slice_.memory.abs().sum() == 0
    assert slice_.version == 0
    assert slice_.applied.keys() == {0, 1}  # and both are answered


def test_async_steps_of_all_workers_add_up_to_one_step_and_damping_divides_the_rate() -> None:
    slice_, policy = held(), Async(world=2, damping=False)
    for rank in range(2):  # gradients arrive weighted by share: each worker has half of the samples
        slice_.arrive(push(rank, [0.5, 0.0]))
        slice_.apply(policy.due(slice_.arrived, {0, 1}), policy)
    torch.testing.assert_close(slice_.memory[0], torch.tensor(-SCHEDULE(10)))
    assert slice_.applied[1].staleness == 1
    assert Async(world=2, damping=True).scale(3) == 1 / 8


def test_ssp_lets_a_worker_be_so_many_steps_ahead_and_no_more() -> None:
    policy = make_policy("ssp:2", world=2, damping=False)
    for ahead, may in ((0, True), (2, True), (3, False)):
        clocks = {0: 5 + ahead, 1: 5}
        assert policy.may_go_on(push(0, None), clocks, {0, 1}) == (ahead <= 2) == may
    assert policy.may_go_on(push(0, None), {0: 50}, {0})
