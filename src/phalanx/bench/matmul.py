"""The machine's own rate: large matrix products in one precision, by PyTorch. Measured by turns.py as peers are."""

import time
from collections.abc import Callable, Iterator
from typing import Any

SIZES = (256, 512, 1024, 2048, 4096)
LONG_S = 0.1  # a product that takes as long is large enough; one that emulates its precision takes it much sooner


def matmul(job: dict[str, Any]) -> Iterator[int]:
    """Products without an end; each answers how many floating-point operations it had."""
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
