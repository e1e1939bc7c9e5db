"""Every form of a convolution and its gradients on ResNet-50's and CIFAR networks' 3×3 shapes: GFLOP/s of direct work.

    python -m benchmarks.convolutions [--threads 2]

Beside them stands what a matrix product of 2048² reaches in the same minute.
"""

import argparse
import time
from collections.abc import Callable

import torch

from phalanx.cpu.convolution import ConvAlgorithms, Shape, algorithms_for, gradients, output
from phalanx.machine.settings import keep_freed_memory

SHAPES = (
    (16, 64, 64, 56),
    (16, 128, 128, 28),
    (16, 256, 256, 14),
    (16, 512, 512, 7),
    (64, 64, 256, 15),
    (64, 256, 256, 7),
)
TRIES = 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    torch.set_num_threads(parser.parse_args().threads)
    keep_freed_memory()
    square = torch.randn(2048, 2048)
    print(f"matrix product: {2 * 2048**3 / _seconds(lambda: square @ square) / 1e9:.0f}")
    shape = Shape((1, 1), (1, 1))
    for images, inner, outer, side in SHAPES:
        x, grad = (
            torch.randn(images, each, side, side).to(memory_format=torch.channels_last) for each in (inner, outer)
        )
        weight = torch.randn(outer, inner, 3, 3).to(memory_format=torch.channels_last)
        work = 2.0 * grad.numel() * inner * 9
        said = []
        for which, ways in algorithms_for(weight, shape).items():
            for way in ways:
                forms, needed = ConvAlgorithms(**{which: way}), (which == "data", which == "weight")
                if which == "output":
                    seconds = _seconds(lambda: output(x, weight, None, shape, forms))  # noqa: B023 (called at once)
                else:
                    seconds = _seconds(lambda: gradients(grad, x, weight, shape, forms, needed))  # noqa: B023
                said.append(f"{which} {way} {work / seconds / 1e9:.0f}")
        print(f"{images} images {inner}→{outer} at {side}²: {', '.join(said)}", flush=True)


def _seconds(work: Callable[[], object]) -> float:
    times = []
    for _ in range(1 + TRIES):
        begin = time.perf_counter()
        work()
        times.append(time.perf_counter() - begin)
    return min(times[1:])


if __name__ == "__main__":
    main()
