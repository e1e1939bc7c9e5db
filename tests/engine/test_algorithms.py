"""All workers of a job compute convolutions by the same algorithms."""

import copy
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from phalanx import cpu
from phalanx.config.role import Role
from phalanx.config.schema import MachineConfig
from phalanx.cpu import tuning
from phalanx.cpu.convolution import TunedConv2d
from phalanx.engine.algorithms import agree_on_algorithms
from phalanx.exchange.rendezvous import LocalRendezvous, StoreRendezvous
from phalanx.machine.settings import Settings, choose
from phalanx.native.build import find_library
from phalanx.net.interfaces import free_port

SHAPES = [(2, 8, 6, 6), (2, 8, 12, 12)]
COLUMNS = ["convolution", "convolution", "columns"]


@pytest.fixture
def settings(own_cache: None, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setattr(tuning, "WORTH_FLOPS", 0)
    monkeypatch.setattr(tuning, "_tuned", {})  # what other tests have timed in this process
    return choose(MachineConfig(precision="fp32", device="cpu"))


def network() -> nn.Module:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 1, stride=2))
    net.to(memory_format=torch.channels_last)
    cpu.prepare(net, "native", to_train=True)
    return net


def test_all_take_the_first_workers_choice_before_the_first_step(settings: Settings, tmp_path: Path) -> None:
    place = f"127.0.0.1:{free_port('127.0.0.1')}"
    everybody = threading.Barrier(2, timeout=60)

    nets = network(), network()  # not in threads: tracing is global

    def agree(rank: int) -> nn.Module:
        net = nets[rank]
        if rank == 1:  # what it would take by itself
            other = dict.fromkeys(("6x6", "12x12", "3x3"), COLUMNS)
            cpu.load(net, {"on": "elsewhere", "of": {"0": other, "3": other}})
        before = copy.deepcopy(net.state_dict())
        rendezvous = StoreRendezvous(Role(rank=rank, world=2, master=place), 60)
        agree_on_algorithms(net, settings, rendezvous, rank, SHAPES)
        everybody.wait()  # the first one keeps the store
        rendezvous.close()
        assert net.training
        assert all(torch.equal(tensor, before[name]) for name, tensor in net.state_dict().items())
        return net

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(agree, range(2))
    assert cpu.state(first) == cpu.state(second)
    assert {size for of in cpu.state(first)["of"].values() for size in of} == {"6x6", "12x12"}
    kept = list(tmp_path.rglob("convolutions.json"))
    assert len(kept) == 1  # by the first one
    times = kept[0].stat().st_mtime_ns
    for net in (first, second):
        for size in (6, 12, 9):  # the last was not foreseen: it is computed plainly, and nobody takes the time
            net(torch.randn(64, 8, size, size).contiguous(memory_format=torch.channels_last)).sum().backward()
    assert cpu.state(first) == cpu.state(second)
    assert kept[0].stat().st_mtime_ns == times


def test_a_resumed_run_keeps_its_algorithms_and_says_where_they_come_from(settings: Settings, tmp_path: Path) -> None:
    net = network()
    saved: dict[str, Any] = {"on": "a Xeon, 64 threads", "of": {"0": {"6x6": COLUMNS}, "3": {"6x6": COLUMNS}}}
    cpu.load(net, saved)
    notes, (warning,) = agree_on_algorithms(net, settings, LocalRendezvous(), 0, SHAPES)
    assert notes == []
    assert "chosen on a Xeon" in warning
    assert "machine.fast_path=auto" in warning
    assert cpu.state(net) == saved
    assert not list(tmp_path.rglob("convolutions.json"))  # nothing was timed
    again = network()
    (timed,), warnings = agree_on_algorithms(again, settings, LocalRendezvous(), 0, SHAPES)
    assert warnings == []
    assert "timed the algorithms of 4 convolutions" in timed
    assert list(tmp_path.rglob("convolutions.json"))


@pytest.mark.skipif(find_library("winograd").handle is None, reason=find_library("winograd").reason)
def test_without_native_code_none_is_used(settings: Settings) -> None:
    net = nn.Sequential(nn.Conv2d(64, 64, 3, padding=1), nn.BatchNorm2d(64)).to(memory_format=torch.channels_last)
    cpu.prepare(net, "products", to_train=True)
    assert isinstance(net[0], TunedConv2d)
    assert type(net) is nn.Sequential  # norms are not computed with what follows
    wanted = {"on": "", "of": {"0": {"6x6": ["winograd"] * 3}}}
    cpu.load(net, wanted)
    agree_on_algorithms(net, settings, LocalRendezvous(), 0, [(2, 64, 6, 6)])
    net(torch.randn(2, 64, 6, 6).contiguous(memory_format=torch.channels_last)).sum().backward()
    assert net[0].algorithms is not None
    assert "winograd" not in net[0].algorithms
    plain = nn.Conv2d(4, 4, 3)
    cpu.prepare(plain, "off", to_train=True)
    assert type(plain) is nn.Conv2d
