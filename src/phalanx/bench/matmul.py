"""The machine's matmul rate in one precision, by PyTorch. turns.py measures it like a peer."""

import time
from collections.abc import Callable, Iterator
from typing import Any

SIZES = (256, 512, 1024, 2048, 4096)
LONG_S = 0.1  # a product of this duration is large enough; emulated precisions reach it at smaller sizes


def matmul(job: dict[str, Any]) -> Iterator[int]:
    """Endless products. Each returns its number of floating-point operations."""
    import torch

    torch.set_num_threads(job["threads"])
    for size in SIZES:
        shape = (size, size)
        one, other, out = (
            torch.randn(shape).to(torch.bfloat16 if job["precision"] == "bf16" else torch.float32) for _ in range(3)
        )
        torch.mm(one, other, out=out)
        begin = time.perf_counter()
        torch.mm(one, other, out=out)
        if time.perf_counter() - begin > LONG_S:
            break
    while True:
        torch.mm(one, other, out=out)
        yield 2 * size**3


PEERS: dict[str, tuple[Callable[[dict[str, Any]], Iterator[int]], tuple[str, ...]]] = {"matmul": (matmul, ("torch",))}
