"""Codecs against a plain reference written here, byte for byte where bytes are promised."""

import math
import struct

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from phalanx.errors import UserError
from phalanx.exchange.compress.cast import CastCodec, PlainCodec
from phalanx.exchange.compress.codec import CHUNK, BadPayload, Codec
from phalanx.exchange.compress.one_bit import OneBitCodec
from phalanx.exchange.compress.top_k import TopKCodec
from phalanx.exchange.compress.two_bit import TwoBitCodec
from phalanx.native.build import native_status

pytestmark = pytest.mark.numeric

SIZES = (1, 2, 3, 4, 5, 7, 15, 16, 17, 31, 33, 255, 256, 257, 1000, CHUNK - 1, CHUNK + 1, 3 * CHUNK + 13)
LOSSY: dict[str, Codec] = {
    "fp16": CastCodec(torch.float16),
    "bf16": CastCodec(torch.bfloat16),
    "2bit:0.5": TwoBitCodec(0.5),
    "2bit:0.5, PyTorch": TwoBitCodec(0.5, native=False),
    "2bit:rms:1": TwoBitCodec(rms_factor=1.0),
    "1bit": OneBitCodec(),
    "1bit, PyTorch": OneBitCodec(native=False),
    "topk:0.1": TopKCodec(0.1),
    "topk:0.1, PyTorch": TopKCodec(0.1, native=False),
}
TWINS: dict[str, tuple[Codec, Codec]] = {
    "2bit:0.5": (TwoBitCodec(0.5), TwoBitCodec(0.5, native=False)),
    "2bit:rms:0.7": (TwoBitCodec(rms_factor=0.7), TwoBitCodec(rms_factor=0.7, native=False)),
    "1bit": (OneBitCodec(), OneBitCodec(native=False)),
    "topk:0.05": (TopKCodec(0.05), TopKCodec(0.05, native=False)),
}
FINITE = st.floats(-1e6, 1e6, width=32)


def decoded(codec: Codec, payload: Tensor, numel: int) -> Tensor:
    out = torch.full((numel,), 7.0)
    codec.decode(payload, out)
    return out


def same_bits(one: Tensor, other: Tensor) -> bool:
    return torch.equal(one.view(torch.uint8), other.view(torch.uint8))


# --- 2bit -----------------------------------------------------------------------------------------------------------


def two_bit_reference(gradient: list[float], residual: list[float], threshold: float) -> bytes:
    """MXNet's definition, one value at a time, in float32."""
    t, packed = np.float32(threshold), bytearray(4 * math.ceil(len(gradient) / 16))
    for i, value in enumerate(gradient):
        r = np.float32(residual[i]) + np.float32(value)
        code = 0
        if r >= t:
            code, r = 0b11, r - t
        elif r <= -t:
            code, r = 0b10, r + t
        packed[i // 4] |= code << (6 - 2 * (i % 4))
        residual[i] = float(r)
    return struct.pack("<f", t) + bytes(packed)


@pytest.mark.parametrize("native", [True, False])
def test_two_bit_bytes_by_hand(native: bool) -> None:
    codec = TwoBitCodec(0.5, native=native)
    gradient = torch.tensor([0.5, -0.5, 0.25, -2.0, 0.0, 0.75])
    residual = torch.tensor([0.0, 0.0, 0.25, 0.0, -0.5, -0.5])
    payload = codec.encode(gradient, residual)
    # 11 10 11 10, then 10 00 and padding to a multiple of four bytes; before them 0.5 as float32
    assert bytes(payload.tolist()) == bytes.fromhex("0000003f") + bytes([0b11101110, 0b10000000, 0, 0])
    assert residual.tolist() == [0.0, 0.0, 0.0, -1.5, 0.0, 0.25]
    assert decoded(codec, payload, 6).tolist() == [0.5, -0.5, 0.5, -0.5, -0.5, 0.0]
    second = codec.encode(torch.zeros(6), residual)
    assert bytes(second[4:].tolist()) == bytes([0b00000010, 0, 0, 0])
    assert residual[3] == -1.0


@pytest.mark.parametrize("native", [True, False])
@settings(max_examples=30, deadline=None)
@given(steps=st.lists(st.lists(FINITE, min_size=37, max_size=37), min_size=1, max_size=4), t=st.floats(1e-3, 1e3))
def test_two_bit_equals_the_reference(native: bool, steps: list[list[float]], t: float) -> None:
    codec, residual, expected_residual = TwoBitCodec(t, native=native), torch.zeros(37), [0.0] * 37
    for gradient in steps:
        payload = codec.encode(torch.tensor(gradient), residual)
        assert bytes(payload.tolist()) == two_bit_reference(gradient, expected_residual, t)
        assert residual.tolist() == expected_residual


@settings(max_examples=30, deadline=None)
@given(
    steps=st.lists(st.lists(st.integers(-(2**12), 2**12), min_size=21, max_size=21), min_size=1, max_size=20),
    t=st.integers(1, 2**10),
)
def test_two_bit_loses_nothing_where_nothing_rounds(steps: list[list[int]], t: int) -> None:
    """Multiples of 2^-10: what was decoded plus the residual is the sum of the gradients, exactly."""
    codec, residual, total = TwoBitCodec(t / 1024), torch.zeros(21), torch.zeros(21)
    for step in steps:
        codec.decode_add(codec.encode(torch.tensor(step) / 1024, residual), total)
    assert (total + residual).tolist() == (torch.tensor(steps).sum(0) / 1024).tolist()


def test_two_bit_relative_to_the_rms() -> None:
    codec, gradient = TwoBitCodec(rms_factor=2.0), torch.tensor([3.0, 4.0, 0.0, 0.0])  # RMS 2.5
    payload = codec.encode(gradient, residual := torch.tensor([2.0, 0.0, 0.0, -5.0]))
    assert decoded(codec, payload, 4).tolist() == [5.0, 0.0, 0.0, -5.0]
    assert residual.tolist() == [0.0, 4.0, 0.0, 0.0]
    nothing = codec.encode(torch.zeros(4), residual)
    assert decoded(codec, nothing, 4).tolist() == [0.0] * 4
    assert residual.tolist() == [0.0, 4.0, 0.0, 0.0]


def test_two_bit_of_the_largest_gradients() -> None:
    codec, residual = TwoBitCodec(rms_factor=1e30), torch.zeros(3)
    payload = codec.encode(torch.tensor([1e18, -1e18, 1.0]), residual)
    assert decoded(codec, payload, 3).tolist() == [0.0] * 3
    assert residual[0] == torch.tensor(1e18)


# --- 1bit, topk, casts ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("native", [True, False])
def test_one_bit_by_hand(native: bool) -> None:
    codec, residual = OneBitCodec(native=native), torch.zeros(9)
    gradient = torch.tensor([1.0, -2.0, 3.0, 0.0, -4.0, 0.0, 0.0, 0.0, 2.0])
    payload = codec.encode(gradient, residual)
    # (1 + 3 + 2) / 7 values from 0 up, (-2 - 4) / 2 below; signs 10110111 1
    up = float(np.float32(6 / 7))
    assert bytes(payload.tolist()) == struct.pack("<ff", up, -3.0) + bytes([0b10110111, 0b10000000, 0, 0])
    assert decoded(codec, payload, 9).tolist() == [up, -3.0, up, up, -3.0, up, up, up, up]
    torch.testing.assert_close(residual, gradient - decoded(codec, payload, 9), rtol=0, atol=0)


@settings(max_examples=30, deadline=None)
@given(values=st.lists(st.sampled_from([-3.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.5, 3.0]), min_size=1, max_size=60))
def test_top_k_equals_a_sort(values: list[float]) -> None:
    """Many ties; the reference sorts by magnitude and then by place."""
    k = max(1, round(0.1 * len(values)))
    chosen = sorted(sorted(range(len(values)), key=lambda i: (-abs(values[i]), i))[:k])
    expected = struct.pack(f"<{k}I", *chosen) + struct.pack(f"<{k}f", *(values[i] for i in chosen))
    for codec in (TopKCodec(0.1), TopKCodec(0.1, native=False)):
        residual = torch.zeros(len(values))
        payload = codec.encode(torch.tensor(values), residual)
        assert bytes(payload.tolist()) == expected
        assert residual.tolist() == [0.0 if i in chosen else value for i, value in enumerate(values)]


@pytest.mark.parametrize(("dtype", "numpy_type"), [(torch.float16, np.float16)])
def test_fp16_is_ieee_half(dtype: torch.dtype, numpy_type: type[np.float16]) -> None:
    values = np.random.default_rng(0).normal(size=1001).astype(np.float32)
    payload = CastCodec(dtype).encode(torch.from_numpy(values), residual := torch.zeros(1001))
    rounded = values.astype(numpy_type)
    assert bytes(payload.tolist()) == rounded.tobytes()
    assert np.array_equal(residual.numpy(), values - rounded.astype(np.float32))


def test_bf16_is_the_upper_half_of_float32() -> None:
    values = torch.tensor([1.0, -2.5, 1.00390625, 1.01171875, 1e18])  # the third and fourth are ties: to even
    payload = CastCodec(torch.bfloat16).encode(values, torch.zeros(5))
    halves = struct.unpack("<5H", bytes(payload.tolist()))
    assert [f"{half:04x}" for half in halves] == ["3f80", "c020", "3f80", "3f82", "5d5e"]


def test_fp16_overflow_is_refused_with_the_value() -> None:
    with pytest.raises(UserError, match=r"-70000.*fp16"):
        CastCodec(torch.float16).encode(torch.tensor([1.0, -70000.0]), torch.zeros(2))
    with pytest.raises(UserError, match=r"40000, summed over 2 workers"):
        CastCodec(torch.float16, num_summed=2).encode(torch.tensor([1.0, 40000.0]), torch.zeros(2))
    CastCodec(torch.bfloat16).encode(torch.tensor([1.0, -70000.0]), torch.zeros(2))


def test_none_keeps_every_bit() -> None:
    values = torch.tensor([1.0, math.nan, -math.inf, -0.0, 1e-40])
    assert same_bits(decoded(PlainCodec(), PlainCodec().encode(values), 5), values)


# --- all ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TWINS)
def test_native_code_and_pytorch_agree_in_every_bit(name: str) -> None:
    native, twin = TWINS[name]
    if "native (" not in native_status():
        pytest.skip(native_status())
    generator = torch.Generator().manual_seed(5)
    for size in SIZES:
        ours, theirs = torch.zeros(size), torch.zeros(size)
        for _ in range(2):
            gradient = torch.randn(size, generator=generator)
            gradient[torch.rand(size, generator=generator) < 0.1] = -0.0
            gradient[torch.rand(size, generator=generator) < 0.1] *= 1e-42  # below the smallest normal number
            payload = native.encode(gradient, ours)
            assert same_bits(payload, twin.encode(gradient, theirs)), size
            assert same_bits(ours, theirs), size
            assert same_bits(decoded(native, payload, size), decoded(twin, payload, size)), size
            one, other = gradient.clone(), gradient.clone()
            native.decode_add(payload, one)
            twin.decode_add(payload, other)
            assert same_bits(one, other), size


@pytest.mark.parametrize("name", LOSSY)
@settings(max_examples=30, deadline=None)
@given(steps=st.lists(st.lists(st.floats(-100, 100, width=32), min_size=43, max_size=43), min_size=1, max_size=6))
def test_what_was_sent_and_what_is_held_back_add_up(name: str, steps: list[list[float]]) -> None:
    codec, residual = LOSSY[name], torch.zeros(43)
    total = torch.zeros(43, dtype=torch.float64)
    for gradient in steps:
        payload = codec.encode(torch.tensor(gradient), residual)
        assert payload.numel() == codec.wire_bytes(43)
        total += decoded(codec, payload, 43)
    expected = torch.tensor(steps, dtype=torch.float64).sum(0)
    # Each step rounds two float32 sums of magnitude below a few hundred.
    torch.testing.assert_close(total + residual, expected, rtol=0, atol=len(steps) * 2e-4)


@pytest.mark.parametrize("name", LOSSY)
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_gradient_that_is_not_finite_arrives_as_such_and_leaves_nothing_behind(name: str, bad: float) -> None:
    codec, residual = LOSSY[name], torch.full((50,), 0.125)
    gradient = torch.ones(50)
    gradient[33] = bad
    payload = codec.encode(gradient, residual)
    assert decoded(codec, payload, 50).isnan().all()
    codec.decode_add(payload, out := torch.zeros(50))
    assert out.isnan().all()
    assert residual.tolist() == [0.125] * 50


@pytest.mark.parametrize("name", LOSSY)
def test_the_smallest_slices(name: str) -> None:
    codec = LOSSY[name]
    assert decoded(codec, codec.encode(torch.zeros(0), torch.zeros(0)), 0).numel() == 0
    residual = torch.zeros(1)
    alone = decoded(codec, codec.encode(torch.tensor([0.75]), residual), 1)
    torch.testing.assert_close(alone + residual, torch.tensor([0.75]))


@pytest.mark.parametrize("name", LOSSY)
def test_without_a_residual_the_error_is_dropped(name: str) -> None:
    codec, gradient = LOSSY[name], torch.linspace(-1, 1, 101)
    assert same_bits(codec.encode(gradient), codec.encode(gradient, torch.zeros(101)))


@pytest.mark.parametrize("name", LOSSY)
def test_a_payload_of_another_size_is_refused(name: str) -> None:
    codec = LOSSY[name]
    payload = codec.encode(torch.ones(100))
    for wrong in (payload[:-1], torch.cat([payload, payload[:1]]), payload[:0]):
        with pytest.raises(BadPayload, match="bytes"):
            codec.decode(wrong, torch.zeros(100))


def test_forged_payloads_are_refused() -> None:
    top_k = TopKCodec(0.1).encode(torch.ones(100))
    top_k[0] = 100
    with pytest.raises(BadPayload, match="index 100 among 100"):
        TopKCodec(0.1).decode(top_k, torch.zeros(100))
    for codec in (TwoBitCodec(0.5), OneBitCodec()):
        payload = codec.encode(torch.ones(100))
        payload[:4] = torch.tensor(list(struct.pack("<f", math.inf)), dtype=torch.uint8)
        with pytest.raises(BadPayload):
            codec.decode_add(payload, torch.zeros(100))


def test_wire_sizes() -> None:
    n = 1_000_000
    assert TwoBitCodec(0.5).wire_bytes(n) == 4 + n // 4
    assert OneBitCodec().wire_bytes(n) == 8 + n // 8
    assert TopKCodec(0.01).wire_bytes(n) == 8 * n // 100
    assert CastCodec(torch.float16).wire_bytes(n) == 2 * n
