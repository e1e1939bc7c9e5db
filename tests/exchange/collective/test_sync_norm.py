"""Synchronised batch norm: workers with parts of a batch compute what one worker computes with all of it."""

import io
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from rich.console import Console
from safetensors.torch import load_file, save_file
from timm.layers import BatchNormAct2d  # type: ignore[attr-defined]
from torch import Tensor, nn

from phalanx.config.recipes import load_recipe
from phalanx.config.resolve import parse_override, resolve
from phalanx.config.role import Role
from phalanx.errors import UserError
from phalanx.exchange.collective.sync_norm import SumOverWorkers, SyncNorm, synchronise
from phalanx.net.interfaces import free_port
from phalanx.roles.request import Request
from phalanx.runs import checkpoint
from tests.conftest import LEAN, train_digits
from tests.processes import preload, start

preload("phalanx.roles.trainer", "torch._dynamo", "timm.layers")


def model() -> nn.Module:
    torch.manual_seed(0)
    net = nn.Sequential(
        *(nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.Conv2d(6, 8, 3), BatchNormAct2d(8)),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.BatchNorm1d(8, affine=False, momentum=None), nn.Linear(8, 4)),
    )
    return net.to(memory_format=torch.channels_last)


def samples() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(11, 3, 9, 9, generator=generator) + 2, torch.randint(4, (11,), generator=generator)


def gradients(net: nn.Module, images: Tensor, labels: Tensor) -> None:
    for _ in range(2):
        logits = net(images)
        loss = F.cross_entropy(logits, labels, reduction="sum") / 11 if len(images) else logits.sum() * 0
        loss.backward()


def worker(rank: int, cuts: list[int], dtype: torch.dtype, port: int, out: Path) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=len(cuts) - 1)
    net = model()
    synchronise(net, torch.device("cpu"))
    images, labels = samples()
    mine = slice(cuts[rank], cuts[rank + 1])
    with torch.autocast("cpu", dtype, enabled=dtype != torch.float32):
        gradients(net, images[mine], labels[mine])
    found = {f"grad/{name}": param.grad for name, param in net.named_parameters() if param.grad is not None}
    for gradient in found.values():
        dist.all_reduce(gradient)
    found |= {f"buffer/{name}": buffer for name, buffer in net.named_buffers()}
    save_file({name: tensor.contiguous() for name, tensor in found.items()}, out / f"{rank}.safetensors")
    dist.destroy_process_group()


@pytest.mark.parametrize(
    ("cuts", "dtype", "exactly"),
    [([0, 5, 11], torch.float32, 1e-5), ([0, 11, 11], torch.float32, 1e-5), ([0, 5, 11], torch.bfloat16, 3e-2)],
    ids=["uneven", "one has none", "bf16"],
)
def test_parts_of_a_batch_are_the_batch(cuts: list[int], dtype: torch.dtype, exactly: float, tmp_path: Path) -> None:
    port = free_port("127.0.0.1")
    processes = [start(worker, rank, cuts, dtype, port, tmp_path) for rank in range(2)]
    net, (images, labels) = model(), samples()
    names = list(net.state_dict())
    if dtype == torch.float32:
        gradients(net.double(), images.double(), labels)  # more exact than either side
    else:
        with torch.autocast("cpu", dtype):
            gradients(net, images, labels)
    for process in processes:
        process.join(60)
        assert process.exitcode == 0
    for rank in range(2):
        found = load_file(tmp_path / f"{rank}.safetensors")
        for name, param in net.named_parameters():
            torch.testing.assert_close(found[f"grad/{name}"].to(param.dtype), param.grad, rtol=exactly, atol=exactly)
        for name, buffer in net.named_buffers():
            torch.testing.assert_close(found[f"buffer/{name}"].double(), buffer.double(), rtol=exactly, atol=exactly)
        assert {name.split("/", 1)[1] for name in found} == set(names)


def test_a_layer_that_is_not_known_is_refused() -> None:
    class Odd(nn.BatchNorm2d):
        pass

    with pytest.raises(UserError, match="type Odd cannot be synchronised"):
        SyncNorm(Odd(3), SumOverWorkers(None, None))


# 1,442 digits in steps of 480: the last of an epoch has two samples, which one of two workers gets. Few steps, because
# training amplifies rounding.
SETTINGS = ["model.name=wrn10_1", "train.length=5st", "train.global_batch_size=480", *LEAN]
SETTINGS += ["optim.lr=0.002", "schedule.kind=constant", "eval.every=1ep"]


def train_one_of_two(rank: int, out: Path, port: int, extra: tuple[str, ...]) -> None:
    from phalanx.roles.run import run

    two = ["exchange.method=collective", "exchange.workers=2", "exchange.sync_bn=true"]
    resolved = resolve([*load_recipe("digits").layers, *map(parse_override, [*SETTINGS, *two, *extra])])
    role = Role(rank=rank, world=2, local_rank=rank, local_world=2, master=f"127.0.0.1:{port}", run=out)
    out.mkdir(exist_ok=True)
    assert run(Request(resolved, "test", out=out), role, Console(file=io.StringIO())).exit_code == 0


def train_two(out: Path, *extra: str) -> dict[str, Tensor]:
    port = free_port("127.0.0.1")
    processes = [start(train_one_of_two, rank, out, port, extra) for rank in range(2)]
    for process in processes:
        process.join(120)
        assert process.exitcode == 0
    return checkpoint.load_newest(out / "checkpoints")[0].tensors["model"]


def test_two_workers_train_as_one_with_the_whole_batch(tmp_path: Path) -> None:
    together = train_two(tmp_path / "two")
    one = train_digits(tmp_path / "one", *SETTINGS)
    alone = checkpoint.load_newest(one / "checkpoints")[0].tensors["model"]
    assert alone.keys() == together.keys()
    learnt = [name for name in alone if "running" not in name and "num_batches" not in name]
    one_row, other_row = (torch.cat([saved[name].flatten() for name in learnt]) for saved in (alone, together))
    assert float((one_row - other_row).norm() / one_row.norm()) < 1e-5
    for name in alone.keys() - set(learnt):
        torch.testing.assert_close(together[name], alone[name], rtol=1e-3, atol=1e-4)


def test_a_micro_batch_that_nobody_has_samples_for(tmp_path: Path) -> None:
    together = train_two(tmp_path / "two", "optim.accumulate=2")  # the step of two samples has one filled of four
    assert all(bool(torch.isfinite(tensor).all()) for tensor in together.values())
    assert int(together["blocks.0.bn1.num_batches_tracked"]) == 2 * 4 + 1


def test_what_cannot_be_synchronised_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"sync_bn needs --update-method collective"):
        train_digits(tmp_path / "run", "exchange.sync_bn=true")
