"""What is fuzzed: each target hands the bytes of one file to a C source, in memory of exactly the size it needs."""

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from zlib import crc32

import numpy as np
import numpy.typing as npt

from phalanx.data.decode.jpeg import DecodeSettings, find_decoder
from phalanx.data.decode.limits import Limits
from phalanx.data.decode.resize import address, native_resizer
from phalanx.native.build import find_library
from tests.fuzz.samples import corpus, jpegs

Array = npt.NDArray[np.generic]


@dataclass(frozen=True)
class Target:
    """A C source, what to do with the bytes of a file, and files to start from."""

    library: str
    run: Callable[[bytes], None]
    samples: Callable[[], Sequence[bytes]]
    share: int  # of the time


def some_bytes() -> list[bytes]:
    """For targets whose input has no form: what is in a file decides about sizes and values."""
    random = Random(0)
    return [random.randbytes(length) for length in (0, 1, 4, 5, 31, 32, 33, 400, 1028, 5000)]


def loaded(name: str) -> ctypes.CDLL:
    library = find_library(name)
    assert library.handle is not None, library.reason
    return library.handle


def exactly(data: bytes, dtype: type[np.generic] = np.uint8) -> Array:
    """The bytes in memory of their own, which ends where they end."""
    return np.frombuffer(data[: len(data) // np.dtype(dtype).itemsize * np.dtype(dtype).itemsize], dtype=dtype).copy()


def box(random: Random, height: int, width: int) -> npt.NDArray[np.float64]:
    """Top, left, height and width of a view: usual, or far outside, or no numbers."""
    values = [random.uniform(-0.5, 1.2) * height, random.uniform(-0.5, 1.2) * width]
    values += [random.uniform(0.01, 1.5) * height, random.uniform(0.01, 1.5) * width]
    if random.random() < 0.3:
        values = [float(round(value)) for value in values]
    if random.random() < 0.1:
        values[random.randrange(4)] = random.choice((0.0, -1.0, 1e-9, 1e9, -1e9, float("nan"), float("inf")))
    return np.array(values)


def jpeg(data: bytes) -> None:
    decoder = find_decoder()
    assert decoder is not None
    random, file = Random(crc32(data)), exactly(data)
    settings = DecodeSettings(
        random.choice((1, 7, 32)),
        random.choice((1, 3)),
        bicubic=random.random() < 0.5,
        reflect=random.random() < 0.5,
        exact=random.random() < 0.5,
        orient=random.random() < 0.5,
        limits=Limits(2_000_000, 30),
    )
    files, lengths = (ctypes.c_void_p * 1)(address(file)), (ctypes.c_int64 * 1)(len(data))
    sizes = np.empty((1, 2), dtype=np.int64)
    decoder.native.jpeg_sizes(1, files, lengths, ctypes.byref(settings), address(sizes))
    height, width = (max(1, side) for side in sizes[0].tolist())
    out = np.empty((settings.size, settings.size, settings.channels), dtype=np.uint8)
    made, view, flip = np.zeros(1, np.uint8), box(random, height, width), np.array([random.random() < 0.5], np.uint8)
    places = (ctypes.c_void_p * 1)(address(out))
    decoder.native.jpeg_decode(
        1, files, lengths, address(view), address(flip), ctypes.byref(settings), places, address(made)
    )
    if height * width < 10**6:
        decoder.native.jpeg_entropy(1, files, lengths)


def resample(data: bytes) -> None:
    native, random = native_resizer(), Random(crc32(data))
    assert native is not None
    height, width, size = random.randint(1, 60), random.randint(1, 60), random.randint(1, 40)
    channels, sides = random.randint(1, 5), np.array([height, width], np.int32)
    pixels = np.resize(exactly(data or b"\0"), (height, width, channels)).copy()
    out, view, flip = np.empty((size, size, channels), np.uint8), box(random, height, width), np.zeros(1, np.uint8)
    native.resample_views(
        *(1, (ctypes.c_void_p * 1)(address(pixels)), address(sides), address(sides[1:]), channels),
        *(address(view), address(flip), size),
        *(random.randrange(2), random.randrange(2), address(out)),
    )


def one_bit(data: bytes) -> None:
    library, packed = loaded("one_bit"), exactly(data)
    values, pair = exactly(data, np.float32), (ctypes.c_float(1.5), ctypes.c_float(-0.5))
    coded = np.empty((len(values) + 7) // 8, np.uint8)
    library.one_bit_encode(_at(values), *pair, ctypes.c_size_t(len(values)), _at(coded))
    count = max(0, 8 * len(packed) - crc32(data) % 8)
    out = np.zeros(count, np.float32)
    for function in (library.one_bit_decode, library.one_bit_decode_add):
        function(_at(packed), *pair, ctypes.c_size_t(count), _at(out))


def two_bit(data: bytes) -> None:
    library, packed = loaded("two_bit"), exactly(data)
    values, threshold = exactly(data, np.float32), ctypes.c_float(0.25)
    coded, residual = np.empty((len(values) + 3) // 4, np.uint8), np.zeros_like(values)
    library.two_bit_encode(_at(values), _at(residual), threshold, ctypes.c_size_t(len(values)), _at(coded))
    count = max(0, 4 * len(packed) - crc32(data) % 4)
    out = np.zeros(count, np.float32)
    for function in (library.two_bit_decode, library.two_bit_decode_add):
        function(_at(packed), threshold, ctypes.c_size_t(count), _at(out))


def top_k(data: bytes) -> None:
    values = exactly(data, np.float32)
    if len(values):
        take(values, 1 + crc32(data) % len(values))


def take(values: Array, k: int, room: int | None = None) -> None:
    """`room` is what is there for the result: `k`, unless a test wants to see the sanitizer at work."""
    indices, taken = np.empty(room or k, np.uint32), np.empty(room or k, np.float32)
    size = ctypes.c_size_t
    loaded("top_k").top_k_take(_at(values), size(len(values)), size(k), _at(indices), _at(taken))


def overrun(data: bytes) -> None:
    """A mistake on purpose, for the test of the fuzzer itself."""
    if len(data) > 100:
        take(np.ones(64, np.float32), 64, room=8)


def norm(data: bytes) -> None:
    library, random = loaded("norm"), Random(crc32(data))
    rows, channels, act = random.randint(1, 400), random.randint(1, 40), random.randrange(6)
    for kind, dtype in (("f32", np.float32), ("bf16", np.uint16)):
        x, added, y, of_x = (np.resize(exactly(data or b"\0"), (rows, channels)).astype(dtype) for _ in range(4))
        per_channel = [np.ones(channels, np.float32) for _ in range(7)]
        weight, bias, mean, variance, inverse, of_weight, of_bias = map(_at, per_channel)
        sizes = ctypes.c_int64(rows), ctypes.c_int64(channels)
        forward, backward = getattr(library, f"norm_forward_{kind}"), getattr(library, f"norm_backward_{kind}")
        plus = _at(added) if random.random() < 0.5 else None
        forward(_at(x), plus, weight, bias, ctypes.c_float(1e-5), act, *sizes, _at(y), mean, variance, inverse, 2)
        sums = (_at(y), _at(added)) if plus is not None and act == 1 else (None, None)
        backward(
            *(_at(x), _at(x), sums[0], weight, bias, mean, inverse, act, *sizes),
            *(_at(of_x), sums[1], of_weight, of_bias, 2),
        )


def winograd(data: bytes) -> None:
    library, random = loaded("winograd"), Random(crc32(data))
    images, pad, inner, outer = random.randint(1, 3), random.randrange(3), *(8 * random.randint(1, 5) for _ in range(2))
    height, width = (random.randint(max(1, 3 - 2 * pad), 14) for _ in range(2))
    made = (images, height + 2 * pad - 2, width + 2 * pad - 2, outer)
    x, y = np.ones((images, height, width, inner), np.float32), np.ones(made, np.float32)
    weight, gradient = (np.ones((outer, 3, 3, inner), np.float32) for _ in range(2))
    strides = (ctypes.c_int64 * 4)(1, 9 * inner, 3 * inner, inner)
    sizes = [ctypes.c_int64(each) for each in (images, height, width, inner, outer, pad)]
    library.winograd_convolve(_at(x), _at(weight), strides, random.randrange(2), _at(y), *sizes, 2)
    library.winograd_weight(_at(x), _at(y), _at(gradient), *sizes, 2)


def conv_bf16(data: bytes) -> None:
    library, random = loaded("conv_bf16"), Random(crc32(data))
    images, inner, outer, stride = (random.randint(1, most) for most in (5, 80, 80, 3))
    kernel, pad = [random.randint(1, 3) for _ in range(2)], random.randrange(3)
    size = [random.randint(each, each + 11) for each in kernel]
    made = [(long + 2 * pad - each) // stride + 1 for long, each in zip(size, kernel, strict=True)]
    x, grad = np.ones((images, *size, inner), np.uint16), np.ones((images, *made, outer), np.uint16)
    gradient = np.ones((outer, *kernel, inner), np.float32)
    sizes = [ctypes.c_int64(each) for each in (images, *size, inner, outer, *kernel, stride, pad)]
    library.bf16_weight(_at(x), _at(grad), _at(gradient), *sizes, 2)


def _at(array: Array) -> ctypes.c_void_p:
    return ctypes.c_void_p(address(array))


def _files(name: str) -> list[bytes]:
    return [path.read_bytes() for path in corpus(name)] + some_bytes()


TARGETS = {
    "jpeg": Target("jpeg", jpeg, jpegs, 6),
    "resample": Target("resample", resample, lambda: _files("resample"), 2),
    "one_bit": Target("one_bit", one_bit, lambda: _files("one_bit"), 1),
    "two_bit": Target("two_bit", two_bit, lambda: _files("two_bit"), 1),
    "top_k": Target("top_k", top_k, lambda: _files("top_k"), 1),
    "norm": Target("norm", norm, lambda: _files("norm"), 1),
    "winograd": Target("winograd", winograd, lambda: _files("winograd"), 1),
    "conv_bf16": Target("conv_bf16", conv_bf16, lambda: _files("conv_bf16"), 1),
}
FAULTY = {"overrun": Target("top_k", overrun, some_bytes, 1)}
