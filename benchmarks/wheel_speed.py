"""Compiled code as a wheel has it beside the same compiled for this very CPU (-march=native): seconds, and their ratio.

    python -m benchmarks.wheel_speed [SOURCE …] [--rounds 9] [--tune=FLAGS]

Both are compiled here by the same compiler, and take turns. A function's time is the least of all rounds.
"""

import argparse
import ctypes
import io
import math
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from phalanx.data.base import View
from phalanx.data.decode.jpeg import DecodeSettings, JpegDecoder, declare
from phalanx.native.compiler import compile_command, compile_library, sources
from phalanx.native.levels import runnable_levels
from phalanx.native.tensors import address

LEAST_S = 0.02  # of one measurement

Run = Callable[[], object]
size, number, whole = ctypes.c_size_t, ctypes.c_float, ctypes.c_int64


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sources", nargs="*", default=list(CASES), help="such as norm; all, if none is named")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--tune", default="", help="more flags of the compiler for the wheel's code")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    level = next(level for level in runnable_levels() if not level.macro)
    print(f"{level.name} against native, {arguments.threads} threads; above 1 the wheel's code is slower")
    ratios: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for source in sources():
            if source.stem not in arguments.sources:
                continue
            ours, native = (
                _compiled(source, flags, Path(folder, f"{source.stem}-{name}.so"))
                for name, flags in (("wheel", [*level.flags, *arguments.tune.split()]), ("native", ["-march=native"]))
            )
            for (name, one), (_, other) in zip(CASES[source.stem](ours), CASES[source.stem](native), strict=True):
                times = _least((one, other), arguments.rounds)
                ratios.setdefault(source.stem, []).append(times[0] / times[1])
                print(
                    f"  {name:32} {times[0] * 1e3:8.3f} ms {times[1] * 1e3:8.3f} ms  {times[0] / times[1]:.3f}",
                    flush=True,
                )
    for name, each in ratios.items():
        print(f"{name:10} {_mean(each):.3f}")
    print(f"all        {_mean([_mean(each) for each in ratios.values()]):.3f}")


def _mean(ratios: list[float]) -> float:
    return math.exp(sum(map(math.log, ratios)) / len(ratios))


def _compiled(source: Path, flags: list[str], library: Path) -> ctypes.CDLL:
    compile_library(source, compile_command(source, flags), library)
    return ctypes.CDLL(str(library))


def _least(runs: tuple[Run, Run], rounds: int) -> list[float]:
    repeats = max(1, math.ceil(LEAST_S / max(_seconds(runs[0], 1), 1e-7)))
    times: list[list[float]] = [[], []]
    for turn in range(2 * rounds):
        which = turn % 2
        times[which].append(_seconds(runs[which], repeats))
    return [min(each) for each in times]


def _seconds(run: Run, repeats: int) -> float:
    begin = time.perf_counter()
    for _ in range(repeats):
        run()
    return (time.perf_counter() - begin) / repeats


def _jpeg(library: ctypes.CDLL) -> Iterator[tuple[str, Run]]:
    declare(library)
    decoder, side = JpegDecoder(library, None), 400
    random = np.random.default_rng(0)
    smooth = Image.fromarray(random.integers(0, 255, (25, 30, 3), dtype=np.uint8)).resize(
        (500, side), Image.Resampling.BICUBIC
    )
    noisy = np.clip(np.asarray(smooth) + random.normal(0, 6, (side, 500, 3)), 0, 255).astype(np.uint8)
    packed = io.BytesIO()
    Image.fromarray(noisy).save(packed, "JPEG", quality=90)
    out = np.empty((224, 224, 3), np.uint8)
    for name, bicubic, box in (("whole", False, (0, 0, side, 500)), ("crop, bicubic", True, (60, 80, 250, 260))):
        settings = DecodeSettings(224, 3, bicubic=bicubic, exact=True)
        yield f"jpeg {name}", partial(decoder.decode, [packed.getvalue()], [View(*box)], settings, [out.ctypes.data])


def _resample(library: ctypes.CDLL) -> Iterator[tuple[str, Run]]:
    pixels = np.random.default_rng(0).integers(0, 255, (400, 500, 3), dtype=np.uint8)
    out, box, flip = np.empty((224, 224, 3), np.uint8), np.array([10.0, 20, 370, 460]), np.zeros(1, np.uint8)
    image, sides = (ctypes.c_void_p * 1)(pixels.ctypes.data), np.array([400, 500], np.int32)
    pointer = ctypes.c_void_p
    for name, bicubic in (("bilinear", 0), ("bicubic", 1)):
        words = (
            *(1, image, pointer(sides.ctypes.data), pointer(sides[1:].ctypes.data), 3, pointer(box.ctypes.data)),
            *(pointer(flip.ctypes.data), 224, bicubic, 0, pointer(out.ctypes.data)),
        )
        yield f"resample {name}", partial(library.resample_views, *words)


COUNT = 1 << 18


def _floats(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


def _one_bit(library: ctypes.CDLL) -> Iterator[tuple[str, Run]]:
    values, packed, pair = _floats(COUNT), torch.empty(COUNT // 8, dtype=torch.uint8), (number(0.1), number(-0.1))
    yield "one_bit encode", lambda: library.one_bit_encode(address(values), *pair, size(COUNT), address(packed))
    yield "one_bit decode", lambda: library.one_bit_decode(address(packed), *pair, size(COUNT), address(values))
    yield "one_bit decode_add", lambda: library.one_bit_decode_add(address(packed), *pair, size(COUNT), address(values))


def _two_bit(library: ctypes.CDLL) -> Iterator[tuple[str, Run]]:
    values, rest, packed = _floats(COUNT), _floats(COUNT), torch.empty(COUNT // 4, dtype=torch.uint8)
    half, count = number(0.5), size(COUNT)
    yield "two_bit encode", lambda: library.two_bit_encode(address(values), address(rest), half, count, address(packed))
    yield "two_bit decode", lambda: library.two_bit_decode(address(packed), half, count, address(values))
    yield "two_bit decode_add", lambda: library.two_bit_decode_add(address(packed), half, count, address(values))


def _top_k(library: ctypes.CDLL) -> Iterator[tuple[str, Run]]:
    values, indices, taken = _floats(COUNT), torch.empty(COUNT, dtype=torch.int32), torch.empty(COUNT)
    full = values.clone()

    def take() -> None:
        values.copy_(full)
        library.top_k_take(address(values), size(COUNT), size(COUNT // 100), address(indices), address(taken))

    yield "top_k take", take


def _norm(library: ctypes.CDLL) -> Iterator[tuple[str, Run]]:
    rows, channels, threads = 16 * 14 * 14, 256, torch.get_num_threads()
    weight, bias, mean, variance, inverse, of_weight, of_bias = _floats(7, channels).unbind()
    sizes = (whole(rows), whole(channels))
    for kind, dtype in (("f32", torch.float32), ("bf16", torch.bfloat16)):
        x, y, of_x, of_added = (_floats(rows, channels).to(dtype) for _ in range(4))
        added = _floats(rows, channels).to(dtype)
        for act, name in ((1, "relu"), (4, "silu"), (5, "gelu")):
            plus, result = (added, y) if act == 1 else (None, None)
            forth = (*map(address, (x, plus, weight, bias)), number(1e-5), act, *sizes)
            forth = (*forth, *map(address, (y, mean, variance, inverse)), threads)
            forward = getattr(library, f"norm_forward_{kind}")
            yield f"norm {name} {kind} forward", partial(forward, *forth)
            back = (*map(address, (added, x, result, weight, bias, mean, inverse)), act, *sizes)
            back = (*back, *map(address, (of_x, of_added if act == 1 else None, of_weight, of_bias)), threads)
            backward = getattr(library, f"norm_backward_{kind}")
            yield f"norm {name} {kind} backward", partial(backward, *back)


def _winograd(library: ctypes.CDLL) -> Iterator[tuple[str, Run]]:
    threads = torch.get_num_threads()
    for images, channels, side in ((8, 64, 56), (8, 256, 14), (32, 64, 15)):
        x, y = (_floats(images, side, side, channels) for _ in range(2))
        weight = _floats(channels, 3, 3, channels)
        strides = (whole * 4)(1, 9 * channels, 3 * channels, channels)
        sizes = tuple(map(whole, (images, side, side, channels, channels, 1)))
        words = (address(x), address(weight), strides, 0, address(y), *sizes, threads)
        name = f"winograd {images}×{channels}×{side}²"
        yield f"{name} output", partial(library.winograd_convolve, *words)
        others = (address(x), address(y), address(weight), *sizes, threads)
        yield f"{name} weight", partial(library.winograd_weight, *others)


CASES = {  # not server_queues, of the planner, where nobody waits for it
    "jpeg": _jpeg,
    "resample": _resample,
    "one_bit": _one_bit,
    "two_bit": _two_bit,
    "top_k": _top_k,
    "norm": _norm,
    "winograd": _winograd,
}

if __name__ == "__main__":
    main()
