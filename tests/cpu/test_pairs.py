"""The weight gradient of bf16 convolutions from pairs of images, also on CPUs that have to emulate the instruction."""

import copy

import pytest
import torch
from torch import Tensor, nn

from phalanx.cpu import pairs
from phalanx.cpu.convolution import ConvAlgorithms, Shape, TunedConv2d, algorithms_for, size_of, tune_convolutions
from phalanx.native.build import find_library

pytestmark = [
    pytest.mark.numeric,
    pytest.mark.skipif(find_library("conv_bf16").handle is None, reason=find_library("conv_bf16").reason),
]


def images(count: int, channels: int, height: int, width: int, seed: int = 0) -> Tensor:
    made = torch.randn(count, channels, height, width, generator=torch.Generator().manual_seed(seed))
    return made.bfloat16().contiguous(memory_format=torch.channels_last)


def by_pytorch(grad: Tensor, x: Tensor, weight: Tensor, stride: int, padding: int) -> Tensor:
    both = ((stride, stride), (padding, padding))
    wanted = [False, True, False]
    _, of_weight, _ = torch.ops.aten.convolution_backward(
        grad, x, weight, None, *both, (1, 1), False, (0, 0), 1, wanted
    )
    assert isinstance(of_weight, Tensor)
    return of_weight


@pytest.mark.parametrize(
    ("count", "into", "out", "kernel", "stride", "padding", "size"),
    [
        (4, 16, 24, 3, 1, 1, 7),
        (3, 40, 17, 3, 2, 1, 8),  # an image without a partner, channels that fill no panel
        (2, 32, 72, 1, 2, 0, 9),
        (5, 64, 16, 1, 1, 0, 6),
        (1, 16, 16, 5, 3, 2, 11),
        (2, 32, 16, 3, 1, 0, 3),
        (4, 512, 320, 1, 1, 0, 26),  # more than is laid out at a time, by parts of an image and by images
        (24, 512, 512, 1, 1, 0, 9),
    ],
)
def test_it_is_the_gradient_as_exact_as_pytorchs(
    count: int, into: int, out: int, kernel: int, stride: int, padding: int, size: int
) -> None:
    x, weight = images(count, into, size, size + 1), torch.zeros(out, into, kernel, kernel)
    height, width = ((each + 2 * padding - kernel) // stride + 1 for each in x.shape[2:])
    grad = images(count, out, height, width, seed=1)
    right = by_pytorch(grad.double(), x.double(), weight.double(), stride, padding)
    theirs = by_pytorch(grad.float(), x.float(), weight, stride, padding)
    results = []
    for threads in (1, 2, 3):
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        try:
            results.append(pairs.weight_gradient(grad, x, (kernel, kernel), stride, padding))
        finally:
            torch.set_num_threads(before)
    bf16_error = float((right.bfloat16() - right).norm())  # of the result that oneDNN gives, at best
    assert float((results[0] - right).norm()) <= 4 * float((theirs - right).norm()) + 1e-3 * bf16_error
    assert all(torch.equal(results[0], each) for each in results)  # whoever shares the work


def test_it_is_for_no_other_convolutions() -> None:
    weight, shape = torch.zeros(16, 16, 3, 3, dtype=torch.bfloat16), Shape((1, 1), (1, 1))
    assert "pairs" in algorithms_for(weight, shape)["weight"]
    assert "pairs" not in algorithms_for(weight, shape, native=False)["weight"]
    for other, how in (
        (weight.float(), shape),
        (weight[:, :3], shape),
        (weight[:8], shape),
        (weight, Shape((1, 2), (1, 1))),
        (weight, Shape((1, 1), (1, 0))),
    ):
        assert "pairs" not in algorithms_for(other, how)["weight"]


def test_a_convolution_trains_with_it() -> None:
    torch.manual_seed(0)
    plain = nn.Conv2d(16, 24, 3, 2, 1).to(memory_format=torch.channels_last)
    tuned, x = copy.deepcopy(plain), images(5, 16, 9, 8).float()
    tune_convolutions(tuned)
    assert isinstance(tuned, TunedConv2d)
    tuned.kept = {size_of(x): ConvAlgorithms(weight="pairs")}
    for each in (plain, tuned):
        with torch.autocast("cpu", torch.bfloat16):
            y = each(x)
        assert y.dtype == torch.bfloat16
        (y * y.detach().sin()).sum().backward()
    for mine, theirs in zip(tuned.parameters(), plain.parameters(), strict=True):
        assert mine.grad is not None
        assert theirs.grad is not None
        assert (mine.grad.dtype, mine.grad.stride()) == (torch.float32, theirs.stride())
        assert float((mine.grad - theirs.grad).norm()) <= 1e-2 * float(theirs.grad.norm())
