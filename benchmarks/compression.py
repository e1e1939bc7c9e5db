"""How fast gradients are compressed: GB/s of float32 input for each codec, native code beside its PyTorch twin.

    .venv/bin/python benchmarks/compression.py

25.5 M values (ResNet-50), one thread, one slice; the best of a few rounds, since other work only ever slows one down.
"""

import argparse
import time
from collections.abc import Callable

import torch

from phalanx.exchange.compress.cast import CastCodec, PlainCodec
from phalanx.exchange.compress.codec import Codec
from phalanx.exchange.compress.one_bit import OneBitCodec
from phalanx.exchange.compress.top_k import TopKCodec
from phalanx.exchange.compress.two_bit import TwoBitCodec
from phalanx.native.build import native_status

Makers = dict[str, Callable[[], Codec]]
CODECS: Makers = {
    "none": PlainCodec,
    "fp16": lambda: CastCodec(torch.float16),
    "bf16": lambda: CastCodec(torch.bfloat16),
    "2bit:1, native": lambda: TwoBitCodec(1.0),
    "2bit:1, fallback": lambda: TwoBitCodec(1.0, native=False),
    "2bit:rms:2, native": lambda: TwoBitCodec(rms_factor=2.0),
    "1bit, native": OneBitCodec,
    "1bit, fallback": lambda: OneBitCodec(native=False),
    "topk:0.01, native": lambda: TopKCodec(0.01),
    "topk:0.01, fallback": lambda: TopKCodec(0.01, native=False),
}


def best_seconds(action: Callable[[], object], rounds: int) -> float:
    seconds = []
    for _ in range(rounds):
        begin = time.perf_counter()
        action()
        seconds.append(time.perf_counter() - begin)
    return min(seconds)


def measure(codec: Codec, gradient: torch.Tensor, rounds: int) -> list[float]:
    """GB/s of encode, decode and decode_add."""
    residual, payload = torch.zeros_like(gradient), torch.empty(codec.wire_bytes(gradient.numel()), dtype=torch.uint8)
    out = torch.zeros_like(gradient)
    actions = (
        lambda: codec.encode(gradient, residual, payload),
        lambda: codec.decode(payload, out),
        lambda: codec.decode_add(payload, out),
    )
    return [4e-9 * gradient.numel() / best_seconds(action, rounds) for action in actions]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--values", type=int, default=25_500_000)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    gradient = torch.randn(arguments.values)
    print("| GB/s of float32 input, 1 thread | encode | decode | decode_add | bytes on the wire |")
    print("| --- | --- | --- | --- | --- |")
    for name, make in CODECS.items():
        codec = make()
        speeds = " | ".join(f"{speed:.2f}" for speed in measure(codec, gradient, arguments.rounds))
        print(f"| {name} | {speeds} | 1/{4 * arguments.values / codec.wire_bytes(arguments.values):.1f} |", flush=True)
    print(native_status())


if __name__ == "__main__":
    main()
