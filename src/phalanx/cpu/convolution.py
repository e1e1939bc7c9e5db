"""Convolutions that train with the algorithm that is fastest on this CPU.

oneDNN's weight gradients reach half the rate of a matrix product for many shapes. Where a matrix product is faster, it
is used: of im2col columns for weight gradients, and directly for 1×1 convolutions. 3×3 convolutions in float32 can also
use Winograd's algorithm, which needs a quarter of the multiplications, and bf16 has a weight gradient of its own
(pairs.py). Results agree within rounding. `tuning.py` times the algorithms before the first step, and all workers of a
job use the first worker's choice. Evaluation uses the same forward algorithm as training. Exported models are plain
Conv2d.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from phalanx.cpu import pairs, winograd

_FEW_CHANNELS = 12  # 3, 4 and 5 were seen to fail, 12 was not
_COLUMN_VALUES = 2**21  # values laid out at a time: 8 MB stay in the cache, and so does their product


class ConvAlgorithms(NamedTuple):
    """The algorithm of a convolution's output and of each of its gradients."""

    output: str = "convolution"  # or product, winograd
    data: str = "convolution"  # or product, winograd
    weight: str = "convolution"  # or columns, winograd, pairs


class Shape(NamedTuple):
    """Stride and padding of a convolution."""

    stride: tuple[int, int]
    padding: tuple[int, int]


PLAIN = ConvAlgorithms()


def algorithms_for(weight: Tensor, shape: Shape, *, native: bool = True) -> dict[str, list[str]]:
    """The algorithms that can compute this convolution's output, data gradient and weight gradient; the default first.

    Without `native`, only those that need no compiled code.
    """
    algorithms = {"output": ["convolution"], "data": ["convolution"], "weight": ["convolution", "columns"]}
    one = tuple(weight.shape[2:]) == (1, 1)
    if one and shape == Shape((1, 1), (0, 0)):
        algorithms["output"].append("product")
        algorithms["data"].append("product")
    if one and max(shape.stride) > 1 and weight.shape[1] < _FEW_CHANNELS:
        algorithms["weight"] = ["columns"]  # torch 2.15 writes beyond its memory here, and the process dies
    if native and winograd.fits(weight, *shape):
        for each in algorithms.values():
            each.append("winograd")
    if native and pairs.fits(weight, *shape):
        algorithms["weight"].append("pairs")
    return algorithms


def output(x: Tensor, weight: Tensor, bias: Tensor | None, shape: Shape, algorithms: ConvAlgorithms) -> Tensor:
    """The convolution of a channels_last x."""
    if algorithms.output != "convolution":
        if algorithms.output == "winograd":
            y = winograd.convolve(x, weight, shape.padding[0])
        else:
            size = (len(x), len(weight), *x.shape[2:])
            y = torch.empty(size, dtype=x.dtype, memory_format=torch.channels_last)
            rows, into = (each.permute(0, 2, 3, 1).flatten(0, 2) for each in (x, y))
            torch.mm(rows, weight.flatten(1).t(), out=into)
        return y if bias is None else y.add_(bias[:, None, None])
    return F.conv2d(x, weight, bias, shape.stride, shape.padding)


def gradients(
    grad: Tensor, x: Tensor, weight: Tensor, shape: Shape, algorithms: ConvAlgorithms, needed: tuple[bool, bool]
) -> tuple[Tensor | None, Tensor | None]:
    """Gradients of (input, weight), where `needed`. All tensors are channels_last. Pairs give a float32 gradient."""
    of_x = of_weight = None
    plain = [needed[0] and algorithms.data == "convolution", needed[1] and algorithms.weight == "convolution", False]
    if any(plain):
        of_x, of_weight, _ = torch.ops.aten.convolution_backward(
            grad, x, weight, None, shape.stride, shape.padding, (1, 1), False, (0, 0), 1, plain
        )
    if needed[0] and algorithms.data == "product":
        of_x = (grad.permute(0, 2, 3, 1) @ weight.flatten(1)).permute(0, 3, 1, 2)
    elif needed[0] and algorithms.data == "winograd":
        of_x = winograd.data_gradient(grad, weight, shape.padding[0])
    if needed[1] and algorithms.weight == "columns":
        of_weight = _weight_by_columns(grad, x, weight, shape)
    elif needed[1] and algorithms.weight == "winograd":
        of_weight = winograd.weight_gradient(grad, x, shape.padding[0])
    elif needed[1] and algorithms.weight == "pairs":
        height, width = weight.shape[2:]
        of_weight = pairs.weight_gradient(grad, x, (height, width), shape.stride[0], shape.padding[0])
    return of_x, of_weight


def _weight_by_columns(grad: Tensor, x: Tensor, weight: Tensor, shape: Shape) -> Tensor:
    """im2col: one row per output pixel, some images at a time, multiplied with the gradients of those pixels."""
    (down, across), (height, width) = shape.stride, weight.shape[2:]
    pixels, grads = x.permute(0, 2, 3, 1), grad.permute(0, 2, 3, 1)
    if any(shape.padding):
        rows, columns = shape.padding
        pixels = F.pad(pixels, (0, 0, columns, columns, rows, rows))
    seen = pixels.unfold(1, height, down).unfold(2, width, across).permute(0, 1, 2, 4, 5, 3)
    seen = seen[:, : grads.shape[1], : grads.shape[2]]
    per_image = seen[0].numel()
    at_once = max(1, _COLUMN_VALUES // per_image) if (height, width) != (1, 1) else len(seen)
    precise = torch.promote_types(weight.dtype, torch.float32)  # sums of bf16 products are kept in float32
    total = torch.zeros(weight.shape[0], weight[0].numel(), dtype=precise, device=weight.device)
    for start in range(0, len(seen), at_once):
        rows_of = seen[start : start + at_once].reshape(-1, weight[0].numel())
        by = grads[start : start + at_once].reshape(-1, weight.shape[0]).t()
        if rows_of.dtype == precise:
            total.addmm_(by, rows_of)
        else:
            total += by @ rows_of
    return total.to(weight.dtype).view(weight.shape[0], height, width, -1).permute(0, 3, 1, 2)


class _Convolve(torch.autograd.Function):
    """A convolution in the dtype of its input. Gradients of parameters go back in theirs, without a step between."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, shape: Shape, algorithms: ConvAlgorithms
    ) -> Tensor:
        used = weight.to(x.dtype)
        ctx.save_for_backward(x, used)
        ctx.shape, ctx.algorithms, ctx.dtype = shape, algorithms, weight.dtype
        return output(x, used, None if bias is None else bias.to(x.dtype), shape, algorithms)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None, None, None]:
        x, weight = ctx.saved_tensors
        grad = grad.contiguous(memory_format=torch.channels_last)
        of_x, of_weight = gradients(grad, x, weight, ctx.shape, ctx.algorithms, ctx.needs_input_grad[:2])
        of_weight = None if of_weight is None else of_weight.to(ctx.dtype)
        return of_x, of_weight, grad.sum((0, 2, 3)).to(ctx.dtype) if ctx.needs_input_grad[2] else None, None, None


class TunedConv2d(nn.Conv2d):
    """A Conv2d that trains with the algorithms chosen for it.

    Images may become larger in the course of a run, so each input size has its own choice. By default the choice is
    made at the first batch, and again at a batch twice as large. Once `agreed`, all workers of a job use the same
    choice: nothing is timed, and a size without a choice is computed by plain Conv2d. Without gradients nothing is
    chosen: evaluation uses the algorithm of this size, or else of the last size trained, or else plain Conv2d.
    """

    native = True  # whether compiled code may be used
    agreed = False
    algorithms: ConvAlgorithms | None = None  # in use
    chosen_for: tuple[str, int, torch.dtype] = ("", 0, torch.float32)  # input size, batch size, dtype
    chosen_on = ""  # which machine; empty for this one
    kept: Mapping[str, ConvAlgorithms] = {}  # by input size: used earlier, here or in the run that is resumed

    @property
    def known(self) -> dict[str, ConvAlgorithms]:
        """By input size; the one in use is the last."""
        size = self.chosen_for[0]
        others = {each: algorithms for each, algorithms in self.kept.items() if each != size}
        return {**others, size: self.algorithms} if self.algorithms else dict(self.kept)

    def forward(self, input: Tensor) -> Tensor:
        if not input.is_contiguous(memory_format=torch.channels_last):
            return super().forward(input)
        x, shape = self._as_computed(input), self.shape
        if not _sound(x, self.weight, shape):
            return super().forward(input)  # raises the error with its reason
        if not torch.is_grad_enabled():
            known, weight = self.known, self.weight.to(x.dtype)
            algorithms = known.get(size_of(x)) or next(reversed(known.values()), None)
            if (
                algorithms is None
                or algorithms.output not in algorithms_for(weight, shape, native=self.native)["output"]
            ):
                return super().forward(input)
            with torch.autocast("cpu", enabled=False):
                return output(x, weight, None if self.bias is None else self.bias.to(x.dtype), shape, algorithms)
        algorithms = self._algorithms_for(x, shape)
        if algorithms == PLAIN:
            return super().forward(input)
        with torch.autocast("cpu", enabled=False):
            return cast(Tensor, _Convolve.apply(x, self.weight, self.bias, shape, algorithms))

    @property
    def shape(self) -> Shape:
        return Shape(*(cast(tuple[int, int], tuple(each)) for each in (self.stride, self.padding)))

    def _as_computed(self, x: Tensor) -> Tensor:
        """The input in the dtype that parameters are cast to: that of autocast, or else their own."""
        return x.to(torch.get_autocast_dtype("cpu")) if torch.is_autocast_enabled("cpu") else x

    def choose(self, input: Tensor) -> None:
        """Choose algorithms for this input now."""
        x = self._as_computed(input)
        if input.is_contiguous(memory_format=torch.channels_last) and _sound(x, self.weight, self.shape):
            self._algorithms_for(x, self.shape)

    def _algorithms_for(self, x: Tensor, shape: Shape) -> ConvAlgorithms:
        size, (old, samples, dtype) = size_of(x), self.chosen_for
        kept = self.kept.get(size)
        if self.algorithms is None or (size, x.dtype) != (old, dtype) or (kept is None and len(x) >= 2 * samples):
            from phalanx.cpu.tuning import choose_algorithms

            if size != old:
                self.kept = self.known
            self.algorithms = choose_algorithms(
                x.detach(), self.weight.detach().to(x.dtype), shape, kept, native=self.native, may_time=not self.agreed
            )
            self.chosen_for = size, len(x), x.dtype
        return self.algorithms


def size_of(x: Tensor) -> str:
    """Height and width of a convolution's input."""
    return "x".join(map(str, x.shape[2:]))


def _sound(x: Tensor, weight: Tensor, shape: Shape) -> bool:
    """Whether input and weight fit together. Native code does not check."""
    lengths = zip(x.shape[2:], shape.padding, weight.shape[2:], strict=False)
    return (
        x.dim() == 4
        and len(x) > 0
        and (x.dtype == weight.dtype or torch.is_autocast_enabled("cpu"))
        and x.device == weight.device
        and x.shape[1] == weight.shape[1]
        and all(length + 2 * padding >= kernel for length, padding, kernel in lengths)
    )


def tune_convolutions(model: nn.Module, *, native: bool = True) -> None:
    """Make the model's plain convolutions TunedConv2d, in place. Parameters and state dict do not change."""
    for module in model.modules():
        if (
            type(module) is nn.Conv2d
            and module.groups == 1
            and tuple(module.dilation) == (1, 1)
            and module.padding_mode == "zeros"
            and not isinstance(module.padding, str)
        ):
            module.__class__ = TunedConv2d
            cast(TunedConv2d, module).native = native
