"""The native JPEG decoder, native/jpeg.c: decodes only what a view needs, straight into a batch's memory.

It is compiled on first use. It decodes most files by itself; for the others it calls a libjpeg-turbo that it finds in
Pillow's wheel, in torchvision's, or in the system, and that decodes a test picture exactly as Pillow does. Without a
compiler there is no native decoder, and Pillow decodes.
"""

import ctypes
import ctypes.util
import functools
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image

from phalanx.data.base import View
from phalanx.data.decode.limits import USUAL_LIMITS, Limits
from phalanx.data.decode.resize import address, boxes_of, flips_of
from phalanx.native.build import find_library

# In the order of `struct library` in native/libjpeg.h.
FUNCTIONS = (
    "jpeg_std_error",
    "jpeg_CreateDecompress",
    "jpeg_destroy_decompress",
    "jpeg_read_header",
    "jpeg_start_decompress",
    "jpeg_crop_scanline",
    "jpeg_skip_scanlines",
    "jpeg_read_scanlines",
    "jpeg_resync_to_restart",
    "jpeg_read_coefficients",
)
LEFT, BY_LIBRARY, BY_OURSELVES = range(3)  # what decoded an image

Sizes = npt.NDArray[np.int64]


class DecodeSettings(ctypes.Structure):
    """How all images of a batch are decoded: `struct settings` of native/jpeg.c."""

    _fields_ = (
        ("size", ctypes.c_int32),
        ("channels", ctypes.c_int32),
        ("bicubic", ctypes.c_int32),
        ("reflect", ctypes.c_int32),
        ("exact", ctypes.c_int32),
        ("orient", ctypes.c_int32),
        ("max_pixels", ctypes.c_int64),
        ("max_scans", ctypes.c_int64),
    )

    def __init__(
        self,
        size: int,
        channels: int,
        *,
        bicubic: bool = False,
        reflect: bool = False,
        exact: bool = False,
        orient: bool = False,
        limits: Limits = USUAL_LIMITS,
    ) -> None:
        super().__init__(size, channels, bicubic, reflect, exact, orient, limits.max_pixels, limits.max_scans)


@dataclass(frozen=True)
class JpegDecoder:
    """The compiled decoder. Its functions run without Python's lock."""

    native: ctypes.CDLL
    library: Path | None  # the libjpeg-turbo for files that it cannot decode by itself

    def sizes(self, data: Sequence[bytes], settings: DecodeSettings) -> Sizes:
        """(height, width) of each upright image; 0 where this decoder cannot decode it."""
        sizes = np.empty((len(data), 2), dtype=np.int64)
        self.native.jpeg_sizes(len(data), *_pointers(data), ctypes.byref(settings), address(sizes))
        return sizes

    def decode(
        self, data: Sequence[bytes], views: Sequence[View], settings: DecodeSettings, out: Sequence[int]
    ) -> npt.NDArray[np.uint8]:
        """Decode the view of each image into `out`. Returns what decoded each; LEFT for those left to Pillow."""
        boxes, flips = boxes_of(views), flips_of(views)
        made = np.full(len(data), LEFT, dtype=np.uint8)
        targets = (ctypes.c_void_p * len(data))(*out)
        self.native.jpeg_decode(
            len(data),
            *_pointers(data),
            address(boxes),
            address(flips),
            ctypes.byref(settings),
            targets,
            address(made),
        )
        return made

    def undo_entropy_coding(self, data: Sequence[bytes]) -> int:
        """Only undo the compression, which bounds the speed of any decoder. Returns how many images failed."""
        return int(self.native.jpeg_entropy(len(data), *_pointers(data)))


@dataclass(frozen=True)
class Found:
    """The decoder, or the reason why there is none."""

    decoder: JpegDecoder | None
    reason: str


_lock = threading.Lock()


def find_decoder() -> JpegDecoder | None:
    """The native decoder, or None; then Pillow decodes, and `decoder_status` says why."""
    with _lock:
        return found_decoder().decoder


def decoder_status() -> str:
    """What decodes JPEGs, and why, as text for users."""
    with _lock:
        return found_decoder().reason


@functools.cache
def found_decoder() -> Found:
    compiled = find_library("jpeg", "Pillow")
    native = compiled.handle
    if native is None:
        return Found(None, compiled.reason)
    declare(native)
    tried = []
    for path in libraries():
        if (complaint := bind(native, path)) is None:
            return Found(JpegDecoder(native, path), f"native, with {path}")
        tried.append(f"{path}: {complaint}")
    why = "; ".join(tried) or "no libjpeg-turbo was found"
    native.jpeg_unbind()
    if _decodes(JpegDecoder(native, None), progressive=False):
        return Found(JpegDecoder(native, None), f"native; progressive ones by Pillow, which is slower ({why})")
    return Found(None, f"Pillow, which is slower ({why})")


def declare(native: ctypes.CDLL) -> None:
    """Declare argument types to ctypes, which would otherwise truncate pointers to 32 bits."""
    pointer, count = ctypes.c_void_p, ctypes.c_int
    native.jpeg_sizes.argtypes = (count, *(pointer,) * 4)
    native.jpeg_decode.argtypes = (count, *(pointer,) * 7)
    native.jpeg_entropy.argtypes = (count, *(pointer,) * 2)


def libraries() -> Iterator[Path]:
    """Files that may be a libjpeg-turbo. Pillow's own comes first: it decodes to the same pixels."""
    for package in ("PIL", "torchvision"):
        spec = find_spec(package)
        if spec is None or spec.origin is None:
            continue
        folder = Path(spec.origin).parent
        name = {"PIL": "pillow"}.get(package, package)
        for place in (folder.parent / f"{name}.libs", folder / ".dylibs", folder.parent / f"{package}.libs"):
            yield from sorted(place.glob("libjpeg*"))
    yield from sorted(Path(sys.prefix, "lib").glob("libjpeg.*"))
    if found := ctypes.util.find_library("jpeg"):
        yield Path(found)


def bind(native: ctypes.CDLL, path: Path) -> str | None:
    """Have the decoder use a library. Returns what is wrong with it, or None."""
    try:
        library = ctypes.CDLL(str(path))
        functions = [ctypes.cast(getattr(library, name), ctypes.c_void_p).value for name in FUNCTIONS]
    except (OSError, AttributeError) as error:
        return str(error)
    if not native.jpeg_bind((ctypes.c_void_p * len(FUNCTIONS))(*functions)):
        return "its interface is not known"
    decoder = JpegDecoder(native, path)
    whole = _decodes(decoder, progressive=False) and _decodes(decoder, progressive=True)
    return None if whole else "it decodes a picture wrongly"


def _decodes(decoder: JpegDecoder, *, progressive: bool) -> bool:
    """Whether a small picture with subsampled colours comes out as it does from Pillow."""
    rows, columns = np.mgrid[0:40, 0:56]
    pixels = np.stack([rows * 6, columns * 4, (rows * columns) % 256], axis=2).astype(np.uint8)
    packed = BytesIO()
    Image.fromarray(pixels).save(packed, "JPEG", quality=90, subsampling=2, progressive=progressive)
    expected = np.asarray(Image.open(packed).convert("RGB"))[9:33, 17:41]
    settings, out = DecodeSettings(24, 3, exact=True), np.zeros((24, 24, 3), dtype=np.uint8)
    made = decoder.decode([packed.getvalue()], [View(9, 17, 24, 24)], settings, [address(out)])
    return bool(made[0] != LEFT) and bool(np.abs(out.astype(int) - expected).max() <= 1)


def _pointers(data: Sequence[bytes]) -> tuple[object, object]:
    lengths = (ctypes.c_int64 * len(data))(*map(len, data))
    return (ctypes.c_char_p * len(data))(*data), lengths
