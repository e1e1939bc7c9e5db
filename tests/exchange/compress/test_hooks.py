"""DDP hooks in two real processes over gloo, launched once; the tests look at what they left."""

import json
import time
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from phalanx.errors import UserError
from phalanx.exchange.compress.codecs import make_codec
from phalanx.exchange.compress.hook_state import HookState
from phalanx.exchange.compress.hooks import register
from phalanx.exchange.compress.residuals import Residuals
from phalanx.exchange.compress.spec import parse_compression
from tests.processes import preload
from tests.processes import start as start_process

preload("torch._dynamo", "torch.nn.parallel", "phalanx.exchange.compress.hooks")

WORLD, STEPS, SAVED_AT = 2, 5, 2
GATHERED = ("2bit:0.5", "2bit:rms:2", "1bit", "topk:0.1")
ALL = ("none", "fp16", "bf16", *GATHERED, "powersgd:2")
SHAPES = {"conv": (6, 5, 3, 3), "matrix": (40, 30), "bias": (7,), "scalar": (1,)}
Steps = list[dict[str, Tensor]]


class Plain(nn.Module):
    """A model whose gradients are the factors that it is given."""

    def __init__(self) -> None:
        super().__init__()
        for name, shape in SHAPES.items():
            self.register_parameter(name, nn.Parameter(torch.zeros(shape)))
        self.to(memory_format=torch.channels_last)

    def forward(self, factors: Mapping[str, Tensor]) -> Tensor:
        return torch.stack([(param * factors[name]).sum() for name, param in self.named_parameters()]).sum()


def factors(rank: int, step: int) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(100 * rank + step)
    return {name: torch.randn(shape, generator=generator) for name, shape in SHAPES.items()}


def start(text: str) -> tuple[nn.Module, HookState]:
    model = Plain()
    ddp = DistributedDataParallel(model, bucket_cap_mb=0.004, gradient_as_bucket_view=True)  # three buckets
    return ddp, register(ddp, parse_compression(text), {param: name for name, param in model.named_parameters()})


def summed(ddp: nn.Module, given: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """One step: the gradients that DDP leaves."""
    ddp.zero_grad()
    ddp(given).backward()
    return {name: param.grad.clone() for name, param in ddp.module.named_parameters()}  # type: ignore[union-attr]


def cloned(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in tensors.items()}


def run(text: str, rank: int) -> dict[str, Any]:
    ddp, state = start(text)
    results, bytes_moved, saved = [], [], {}
    for step in range(STEPS):
        begin = time.perf_counter()
        results.append(summed(ddp, factors(rank, step)))
        assert begin < state.last_ready < time.perf_counter()
        bytes_moved.append(list(state.take_bytes()))
        if step == SAVED_AT:
            saved = cloned(state.tensors())
    fresh, fresh_state = start(text)
    fresh_state.load(saved)
    resumed = [summed(fresh, factors(rank, step)) for step in range(SAVED_AT + 1, STEPS)]
    return {
        "results": results,
        "resumed": resumed,
        "residuals": cloned(state.tensors()),
        "bytes": bytes_moved,
        "loaded": {name: bool(torch.equal(saved[name], fresh_state.tensors()[name])) for name in saved},
    }


def refusal(rank: int) -> str:
    ddp, _ = start("fp16")
    try:
        ddp({name: 1e5 * tensor.sign() for name, tensor in factors(rank, 0).items()}).backward()
    except UserError as error:
        return str(error)
    return "nothing was refused"


def not_finite(text: str, rank: int) -> dict[str, Any]:
    """Only the last rank's matrix holds an infinity."""
    ddp, state = start(text)
    summed(ddp, factors(rank, 0))
    before, given = cloned(state.tensors()), factors(rank, 1)
    if rank == WORLD - 1:
        given["matrix"][3, 4] = torch.inf
    seen = summed(ddp, given)
    return {
        "nan": {name: bool(tensor.isnan().any()) for name, tensor in seen.items()},
        "kept": torch.equal(before["matrix"], state.tensors()["matrix"]),
        "later": all(bool(tensor.isfinite().all()) for tensor in summed(ddp, factors(rank, 2)).values()),
    }


def work(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    patience = timedelta(seconds=30)
    dist.init_process_group("gloo", f"file://{folder}/meet", timeout=patience, rank=rank, world_size=WORLD)
    torch.save({text: run(text, rank) for text in ALL}, f"{folder}/{rank}.pt")
    checks = {"not finite": {text: not_finite(text, rank) for text in ALL[1:-1]}, "refusal": refusal(rank)}
    Path(folder, f"{rank}.json").write_text(json.dumps(checks))
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("ranks")
    for process in [start_process(work, rank, str(path)) for rank in range(WORLD)]:
        process.join(120)
        assert process.exitcode == 0
    return path


@pytest.fixture(scope="module")
def ranks(folder: Path) -> list[dict[str, Any]]:
    return [torch.load(folder / f"{rank}.pt") for rank in range(WORLD)]


@pytest.fixture(scope="module")
def checks(folder: Path) -> list[dict[str, Any]]:
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(WORLD)]


def in_memory_order(name: str, tensor: Tensor) -> Tensor:
    return tensor.permute(0, 2, 3, 1).reshape(-1) if name == "conv" else tensor.reshape(-1)


@pytest.mark.parametrize("text", ALL)
def test_all_ranks_get_the_same_bits(ranks: list[dict[str, Any]], text: str) -> None:
    first, second = (rank[text]["results"] for rank in ranks)
    assert all(torch.equal(first[step][name], second[step][name]) for step in range(STEPS) for name in SHAPES)


@pytest.mark.parametrize("text", GATHERED)
def test_the_result_is_the_sum_of_the_decoded_payloads(ranks: list[dict[str, Any]], text: str) -> None:
    codec = make_codec(parse_compression(text))
    for name in SHAPES:
        residuals = [torch.zeros(SHAPES[name]).view(-1) for _ in range(WORLD)]
        for step in range(STEPS):
            expected = torch.zeros_like(residuals[0])
            for rank in range(WORLD):
                gradient = in_memory_order(name, factors(rank, step)[name])
                codec.decode_add(codec.encode(gradient, residuals[rank]), expected)
            assert torch.equal(in_memory_order(name, ranks[0][text]["results"][step][name]), expected)
        for rank in range(WORLD):
            assert torch.equal(in_memory_order(name, ranks[rank][text]["residuals"][name]), residuals[rank])


def test_none_sums_and_does_not_divide(ranks: list[dict[str, Any]]) -> None:
    for step, result in enumerate(ranks[0]["none"]["results"]):
        for name in SHAPES:
            assert torch.equal(result[name], factors(0, step)[name] + factors(1, step)[name])


@pytest.mark.parametrize("text", ALL[1:])
def test_what_arrived_and_what_was_held_back_add_up(ranks: list[dict[str, Any]], text: str) -> None:
    # The casts add in 16 bits, and what that rounds away is nobody's residual.
    tolerance = {"fp16": 0.01, "bf16": 0.1}.get(text, 1e-4)
    for name in SHAPES:
        arrived = torch.stack([result[name] for result in ranks[0][text]["results"]]).sum(0)
        held_back = torch.stack([rank[text]["residuals"][name] for rank in ranks]).sum(0)
        wanted = torch.stack([factors(rank, step)[name] for rank in range(WORLD) for step in range(STEPS)]).sum(0)
        torch.testing.assert_close(arrived + held_back, wanted, rtol=0, atol=tolerance)


@pytest.mark.parametrize("text", ALL[:-1])
def test_a_resumed_run_goes_on_in_every_bit(ranks: list[dict[str, Any]], text: str) -> None:
    """With other buckets too: the resumed DDP has not rebuilt its own yet."""
    for rank in ranks:
        later = rank[text]["results"][SAVED_AT + 1 :]
        pairs = zip(rank[text]["resumed"], later, strict=True)
        assert all(torch.equal(one[name], other[name]) for one, other in pairs for name in SHAPES)


def test_powersgd_keeps_what_was_loaded(ranks: list[dict[str, Any]]) -> None:
    """Its first two steps send all, and so leave residuals alone."""
    for rank in ranks:
        assert rank["powersgd:2"]["loaded"] == dict.fromkeys(SHAPES, True)


def test_bytes_are_those_of_the_payloads(ranks: list[dict[str, Any]]) -> None:
    total = sum(torch.Size(shape).numel() for shape in SHAPES.values())
    assert ranks[0]["none"]["bytes"] == [[4 * total, 4 * total]] * STEPS
    assert ranks[0]["fp16"]["bytes"] == [[2 * total, 2 * total]] * STEPS
    for text in GATHERED:
        codec = make_codec(parse_compression(text))
        payload = sum(codec.wire_bytes(torch.Size(shape).numel()) for shape in SHAPES.values())
        assert ranks[1][text]["bytes"] == [[payload, payload]] * STEPS
    low_rank = 4 * (2 * (6 + 45) + 2 * (40 + 30) + 7 + 1)
    assert ranks[0]["powersgd:2"]["bytes"] == [[4 * total] * 2] * 2 + [[low_rank] * 2] * 3


@pytest.mark.parametrize("text", ALL[1:-1])
def test_an_overflow_on_one_rank_is_seen_by_all_and_forgotten(checks: list[dict[str, Any]], text: str) -> None:
    for rank in checks:
        seen = rank["not finite"][text]
        assert seen["nan"]["matrix"]
        assert seen["later"]
    assert checks[WORLD - 1]["not finite"][text]["kept"]


def test_fp16_overflow_stops_backward_with_our_own_error(checks: list[dict[str, Any]]) -> None:
    for rank in checks:
        assert "100000, summed over 2 workers, does not fit into fp16 (gradient of " in rank["refusal"]


def test_a_residual_of_another_model_is_refused() -> None:
    residuals = Residuals({nn.Parameter(torch.zeros(2, 3)): "weight"})
    with pytest.raises(UserError, match="'other'"):
        residuals.load({"other": torch.zeros(2, 3)})
    with pytest.raises(UserError, match=r"shape \(3, 2\)"):
        residuals.load({"weight": torch.zeros(3, 2)})
