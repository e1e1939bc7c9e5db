"""Buckets, slices and payloads of the planner are those of the exchange itself."""

import pytest
import torch
import torch.distributed as dist

from phalanx.config.schema import ModelConfig
from phalanx.exchange.collective.buckets import BUCKET_MIB, FIRST_BUCKET_BYTES, fill_buckets
from phalanx.exchange.compress.codecs import make_codec
from phalanx.exchange.compress.spec import parse_compression
from phalanx.exchange.compress.wire_sizes import power_sgd_values, wire_bytes
from phalanx.plan.profile import profile_key, shipped_profiles


def ddp_buckets(params: list[torch.Tensor]) -> list[list[int]]:
    """As torch's DDP fills them, given parameters in the order of their gradients."""
    limits = [FIRST_BUCKET_BYTES, BUCKET_MIB << 20]
    buckets, _ = vars(dist)["_compute_bucket_assignment_by_size"](params, limits, [False] * len(params))
    return [list(bucket) for bucket in buckets]


@pytest.mark.parametrize("model", ["resnet50", "vgg16", "cifar_resnet20"])
def test_buckets_are_those_of_ddp(model: str) -> None:
    key = profile_key(ModelConfig(name=model), *((10, 3, 32) if "cifar" in model else (1000, 3, 224)))
    profile = shipped_profiles().get(key)
    assert profile is not None
    order = [segment.param for segment in profile.backward]
    assert sorted(order) == list(range(len(profile.sizes)))
    params = [torch.empty(profile.sizes[place]) for place in order]
    assert fill_buckets([4 * profile.sizes[place] for place in order]) == ddp_buckets(params)


def test_the_first_bucket_is_torchs() -> None:
    assert vars(dist)["_DEFAULT_FIRST_BUCKET_BYTES"] == FIRST_BUCKET_BYTES


@pytest.mark.parametrize("text", ["none", "fp16", "bf16", "2bit", "1bit", "topk:0.01"])
@pytest.mark.parametrize("numel", [1, 15, 16, 33, 1000])
def test_payloads_are_as_long_as_the_codec_makes_them(text: str, numel: int) -> None:
    spec = parse_compression(text)
    payload = make_codec(spec).encode(torch.randn(numel))
    assert payload.numel() == wire_bytes(spec, numel)


def test_powersgd_sends_two_matrices_where_that_saves_half() -> None:
    assert power_sgd_values(4, 512, 512 * 2048) == 4 * (512 + 2048)
    assert power_sgd_values(4, 64, 64) == 64  # a vector
    assert power_sgd_values(64, 64, 64 * 64) == 64 * 64
