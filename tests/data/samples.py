"""What tests of sources share: a framing that is told its views, image files, and where the real data is."""

from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

from phalanx.data.base import Pixels, View
from phalanx.data.order import Indices
from phalanx.errors import UserError

REAL = Path(__file__).resolve().parents[2].parent / "shared" / "data"
needs_real_data = pytest.mark.skipif(not REAL.is_dir(), reason="the shared test data is not beside the repository")


@dataclass(frozen=True)
class FixedViews:
    """A framing with the view of each sample given; without one, the whole image."""

    size: int
    told: tuple[View, ...] = ()
    interpolation: str = "bilinear"
    pad_mode: str = "zero"

    def views(self, indices: Indices, sizes: npt.NDArray[np.int64], epoch: int) -> list[View]:
        if self.told:
            return [self.told[index % len(self.told)] for index in indices.tolist()]
        return [View(0.0, 0.0, float(height), float(width)) for height, width in sizes.tolist()]


def noise(*shape: int, seed: int = 0) -> Pixels:
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def smooth(height: int, width: int) -> Pixels:
    """A colour picture without sharp edges, which lossy formats keep nearly unchanged."""
    rows, columns = np.mgrid[0:height, 0:width]
    red, green = rows * 255 // height, columns * 255 // width
    return np.stack([red, green, (red + green) // 2], axis=2).astype(np.uint8)


def photograph(seed: int, size: int = 96) -> Pixels:
    """Something with large and small structures, as in photographs."""
    rng = np.random.default_rng(seed)
    out = np.zeros((size, size, 3))
    for side in (3, 6, 12, 24):
        layer = Image.fromarray(rng.integers(0, 256, (side, side, 3), dtype=np.uint8))
        out += np.asarray(layer.resize((size, size), Image.Resampling.BICUBIC), dtype=float) / side
    pixels: Pixels = (255 * (out - out.min()) / np.ptp(out)).astype(np.uint8)
    return pixels


def image_bytes(pixels: Pixels, form: str = "PNG", mode: str | None = None) -> bytes:
    image = Image.fromarray(pixels)
    out = BytesIO()
    (image.convert(mode) if mode else image).save(out, form, quality=95)
    return out.getvalue()


def write_images(folder: Path, classes: dict[str, int]) -> Path:
    """`classes` names class folders and how many PNG images of one grey level each gets; the level is told by name."""
    for number, (name, count) in enumerate(classes.items()):
        (folder / name).mkdir(parents=True)
        for i in range(count):
            pixels = np.full((6, 8, 3), 10 * number + i, dtype=np.uint8)
            (folder / name / f"{i}.png").write_bytes(image_bytes(pixels))
    return folder


def assert_helpful(error: UserError, *words: str) -> None:
    """An error says what, why and what to do, and names what the user needs to find the place."""
    assert error.what
    assert error.why
    assert error.remedy
    missing = [word for word in words if word not in str(error)]
    assert not missing, f"{missing} not in: {error}"
