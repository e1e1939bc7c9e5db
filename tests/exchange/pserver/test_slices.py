"""Slices cover everything once, are balanced, and update as the whole would."""

import pytest
import torch

from phalanx.errors import UserError
from phalanx.exchange.pserver import state as states
from phalanx.exchange.pserver.policy import Push, Sync
from phalanx.exchange.pserver.slice_state import SliceState
from phalanx.exchange.pserver.slices import Layout, cut, needs_whole, part_of, refuse_global, views
from phalanx.models.params import no_decay_names
from phalanx.optim.update import Update
from tests.exchange.pserver.pserver_jobs import SCHEDULE, model, optim

RESNET50_LIKE = {f"conv{n}": 64 * 64 * 9 * (n + 1) for n in range(40)} | {f"bn{n}": 64 for n in range(100)}


@pytest.mark.parametrize("num_servers", [1, 2, 3, 7])
@pytest.mark.parametrize("whole", [False, True])
def test_every_element_is_in_one_slice_and_servers_are_balanced(num_servers: int, whole: bool) -> None:
    slices = cut(RESNET50_LIKE, num_servers, whole=whole)
    covered: dict[str, int] = dict.fromkeys(RESNET50_LIKE, 0)
    for each in slices:
        assert len(each.pieces) <= 64
        for piece in each.pieces:
            assert piece.start == covered[piece.name]
            assert piece.start % 64 == 0
            assert piece.whole == (piece.stop - piece.start == RESNET50_LIKE[piece.name])
            assert piece.whole or not whole
            covered[piece.name] = piece.stop
    assert covered == RESNET50_LIKE
    load = [sum(each.bytes for each in slices if each.server == server) for server in range(num_servers)]
    assert max(load) - min(load) <= max(each.bytes for each in slices)
    assert [each.number for each in slices] == list(range(len(slices)))


def test_messages_are_few() -> None:
    resnet20 = {f"conv{n}": 4096 for n in range(60)} | {"fc.bias": 10}
    assert len(cut(resnet20, 1)) <= 4
    assert len(cut({"fc": 25_000_000}, 1)) == 24


@pytest.mark.parametrize("name", ["sgd", "adamw", "rmsprop", "lars", "muon", "muon-sgd", "lion"])
@pytest.mark.parametrize("rates", ["{}", "{'*.weight': 0.1}"])
def test_an_update_of_slices_is_the_update_of_the_whole_bit_for_bit(name: str, rates: str) -> None:
    config = optim(f"name={name}", "weight_decay=0.01", "decay_norm_and_bias=false", f"rates={rates}")
    net = model()
    params = dict(net.named_parameters())
    spared = no_decay_names(net)
    layouts = {key: Layout.of(param) for key, param in params.items()}
    slices = cut({key: param.numel() for key, param in params.items()}, 3, whole=needs_whole(config))
    assert any(not piece.whole for each in slices for piece in each.pieces) != needs_whole(config)
    held = [SliceState(each, torch.zeros(each.span), layouts, spared, config, SCHEDULE) for each in slices]
    for each in held:
        torch._foreach_copy_(
            views(each.memory, each.slice, layouts),
            [part_of(params[piece.name].detach(), piece) for piece in each.slice.pieces],
        )
    update = Update(params, spared, config, SCHEDULE)
    for step in range(4):
        for param in params.values():
            param.grad = torch.randn_like(param)
        for each in held:
            parts = [part_of(params[piece.name].grad.clone(), piece) for piece in each.slice.pieces]  # type: ignore[union-attr]
            each.arrive(Push(0, step, step, step, list(parts)))
            each.apply([each.arrived[0]], Sync())
        update(step)
    for each in held:
        for piece, mine in zip(each.slice.pieces, views(each.memory, each.slice, layouts), strict=True):
            assert torch.equal(mine, part_of(params[piece.name].detach(), piece)), piece
    joined = states.join([(each.slice, *states.unpack(each.state())) for each in held], layouts, spared, config.rates)
    tensors, scalars = update.state()
    assert joined[0].keys() == tensors.keys()
    for key, value in tensors.items():
        assert torch.equal(joined[0][key], value), key
        assert joined[0][key].stride() == value.stride()
    assert joined[1] == scalars


def test_what_needs_all_gradients_at_once_is_refused() -> None:
    with pytest.raises(UserError, match="clip_norm"):
        refuse_global(optim("clip_norm=1"))
    with pytest.raises(UserError, match="max_grad_norm"):
        refuse_global(optim("name=lamb"))
    refuse_global(optim("name=lamb", "options={max_grad_norm: null}"))
