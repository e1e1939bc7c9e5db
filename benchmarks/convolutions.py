"""Every form of a convolution and its gradients on shapes of ResNet-50 and CIFAR networks: GFLOP/s of direct work.

    python -m benchmarks.convolutions [--threads 2] [--precision bf16]

Beside them stands what a matrix product of 2048² reaches in the same minute.
"""

import argparse
import time
from collections.abc import Callable

import torch

from phalanx.cpu.convolution import ConvAlgorithms, Shape, algorithms_for, gradients, output
from phalanx.machine.settings import keep_freed_memory

SHAPES = (  # images, channels in and out, side, kernel, stride
    (16, 64, 64, 56, 3, 1),
    (16, 128, 128, 28, 3, 1),
    (16, 256, 256, 14, 3, 1),
    (16, 512, 512, 7, 3, 1),
    (64, 64, 256, 15, 3, 1),
    (64, 256, 256, 7, 3, 1),
    (16, 128, 128, 56, 3, 2),
    (16, 512, 512, 14, 3, 2),
    (16, 64, 256, 56, 1, 1),
    (16, 256, 1024, 14, 1, 1),
    (16, 2048, 512, 7, 1, 1),
    (16, 256, 512, 56, 1, 2),
)
TRIES = 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    dtype = torch.bfloat16 if given.precision == "bf16" else torch.float32
    keep_freed_memory()
    square = torch.randn(2048, 2048).to(dtype)
    print(f"matrix product: {2 * 2048**3 / _seconds(lambda: square @ square) / 1e9:.0f}")
    for images, inner, outer, side, kernel, stride in SHAPES:
        shape = Shape((stride, stride), (kernel // 2, kernel // 2))
        x, grad = (
            torch.randn(images, channels, pixels, pixels).to(dtype, memory_format=torch.channels_last)
            for channels, pixels in ((inner, side), (outer, (side - 1) // stride + 1))
        )
        weight = torch.randn(outer, inner, kernel, kernel).to(dtype, memory_format=torch.channels_last)
        work = 2.0 * grad.numel() * inner * kernel**2
        said = []
        for which, ways in algorithms_for(weight, shape).items():
            for way in ways:
                forms, needed = ConvAlgorithms(**{which: way}), (which == "data", which == "weight")
                if which == "output":
                    seconds = _seconds(lambda: output(x, weight, None, shape, forms))  # noqa: B023 (called at once)
                else:
                    seconds = _seconds(lambda: gradients(grad, x, weight, shape, forms, needed))  # noqa: B023
                said.append(f"{which} {way} {work / seconds / 1e9:.0f}")
        about = f"{kernel}×{kernel} by {stride}, {images} images {inner}→{outer} at {side}²"
        print(f"{about}: {', '.join(said)}", flush=True)


def _seconds(work: Callable[[], object]) -> float:
    times = []
    for _ in range(1 + TRIES):
        begin = time.perf_counter()
        work()
        times.append(time.perf_counter() - begin)
    return min(times[1:])


if __name__ == "__main__":
    main()
