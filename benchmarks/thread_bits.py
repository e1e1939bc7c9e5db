"""Which kernels of a training step give other bits with another number of threads, by comparing them with one thread.

    python -m benchmarks.thread_bits [--threads 2,4]

Prints the largest difference, relative to the largest value, or "same". No time is measured.
"""

import argparse
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from phalanx.cpu.convolution import ConvAlgorithms, Shape, algorithms_for, gradients, output
from phalanx.cpu.normalization import normalize

Work = Callable[[], Sequence[Tensor]]
# samples, channels in and out, side, kernel, stride
CONVOLUTIONS = ((64, 16, 16, 16, 3, 1), (64, 64, 64, 8, 3, 1), (16, 64, 64, 56, 3, 1), (16, 64, 256, 28, 1, 1))
PRODUCTS = ((64, 10, 64), (64, 1000, 512), (64, 64, 16384), (512, 512, 512))  # m, n, k


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", default="2,4", help="numbers that are compared with 1")
    numbers = [int(word) for word in parser.parse_args().threads.split(",")]
    for name, work in kernels():
        one = _with_threads(1, work)
        print(f"{name}: {'; '.join(f'{n} threads {_difference(one, _with_threads(n, work))}' for n in numbers)}")


def kernels() -> Iterator[tuple[str, Work]]:
    """Each kernel with fixed inputs."""
    for dtype in (torch.float32, torch.bfloat16):
        named = str(dtype).removeprefix("torch.")
        for images, inner, outer, side, kernel, stride in CONVOLUTIONS:
            yield from _convolutions(named, dtype, (images, inner, outer, side), kernel, stride)
        for m, n, k in PRODUCTS:
            a, b = _random(m, k).to(dtype), _random(k, n).to(dtype)
            yield f"{named} product {m}x{k} by {k}x{n}", _product(a, b)
            yield f"{named} product {n}x{k} by {k}x{m}, transposed", _product(b.t(), a.t())
    maps = _random(256, 64, 31, 31).to(memory_format=torch.channels_last)
    norm = nn.BatchNorm2d(64)
    yield "batch norm, ours", lambda: _trained(lambda x: normalize(norm, x, None, "relu"), maps, norm)
    yield "batch norm, torch's", lambda: _trained(norm, maps, norm)
    words, layer_norm, linear = _random(64, 50, 384), nn.LayerNorm(384), nn.Linear(384, 1536)
    yield "layer norm", lambda: _trained(layer_norm, words, layer_norm)
    yield "linear layer", lambda: _trained(linear, words, linear)
    yield "max-pooling", lambda: _trained(lambda x: F.max_pool2d(x, 3, 2, 1), maps)
    yield "mean over pixels", lambda: _trained(lambda x: x.mean((2, 3)), maps)
    heads = _random(8, 6, 50, 64)
    yield "attention", lambda: _trained(lambda x: F.scaled_dot_product_attention(x, x, x), heads)
    yield "gelu", lambda: _trained(F.gelu, maps)
    yield "cross-entropy", lambda: _trained(lambda x: F.cross_entropy(x, torch.arange(256)), _random(256, 1000))
    yield "norm of a large tensor, as clipping has it", lambda: [maps.norm()]
    yield "sum of a large tensor", lambda: [maps.sum()]


def _product(a: Tensor, b: Tensor) -> Work:
    return lambda: [a @ b]


def _convolutions(
    named: str, dtype: torch.dtype, sizes: tuple[int, int, int, int], kernel: int, stride: int
) -> Iterator[tuple[str, Work]]:
    images, inner, outer, side = sizes
    shape = Shape((stride, stride), (kernel // 2, kernel // 2))
    x, grad = (_random(images, each, side, side).to(dtype).to(memory_format=torch.channels_last) for each in sizes[1:3])
    weight = _random(outer, inner, kernel, kernel).to(dtype).to(memory_format=torch.channels_last)
    for which, ways in algorithms_for(weight, shape).items():
        for way in ways:
            chosen, needed = ConvAlgorithms(**{which: way}), (which == "data", which == "weight")

            def work(which: str = which, chosen: ConvAlgorithms = chosen, needed: tuple[bool, bool] = needed) -> Work:
                if which == "output":
                    return lambda: [output(x, weight, None, shape, chosen)]
                return lambda: [each for each in gradients(grad, x, weight, shape, chosen, needed) if each is not None]

            yield f"{named} {kernel}x{kernel} {inner}→{outer} at {side}², {which} by {way}", work()


def _random(*sizes: int) -> Tensor:
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(0))


def _trained(layer: Callable[[Tensor], Tensor], x: Tensor, module: nn.Module | None = None) -> list[Tensor]:
    """Output and gradients."""
    x = x.clone(memory_format=torch.preserve_format).requires_grad_()
    y = layer(x)
    (y * y.detach().sin()).sum().backward()
    grads = [x.grad, *(parameter.grad for parameter in (module.parameters() if module else ()))]
    for parameter in module.parameters() if module else ():
        parameter.grad = None
    return [y.detach(), *(grad for grad in grads if grad is not None)]


def _with_threads(number: int, work: Work) -> Sequence[Tensor]:
    torch.set_num_threads(number)
    return work()


def _difference(one: Sequence[Tensor], other: Sequence[Tensor]) -> str:
    pairs = [(a.double(), b.double()) for a, b in zip(one, other, strict=True)]
    worst = max(float((a - b).abs().max() / a.abs().max()) for a, b in pairs)
    return f"{worst:.0e}" if worst else "same"


if __name__ == "__main__":
    main()
