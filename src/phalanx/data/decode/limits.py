"""The largest images that are decoded: a small file may take seconds and gigabytes. Told before any of it is spent."""

import re
from dataclasses import dataclass

from PIL import Image
from PIL.JpegImagePlugin import JpegImageFile

from phalanx.config.schema import DataConfig

# What follows 0xff is a marker, but for a stuffed zero, a restart, or filling.
MARKER = re.compile(rb"\xff[^\x00\xff\xd0-\xd7]", re.DOTALL)
SCAN, END = 0xDA, 0xD9
FIRST_WITH_LENGTH, WITHOUT_LENGTH = 0xC0, (0xD8, END)


@dataclass(frozen=True)
class Limits:
    """What one image may have."""

    max_pixels: int
    max_scans: int

    @classmethod
    def of(cls, config: DataConfig) -> "Limits":
        return cls(config.max_pixels, config.max_scans)

    def excess(self, image: Image.Image, data: bytes) -> str:
        """What an opened image has too much of; empty if nothing."""
        if (pixels := image.width * image.height) > self.max_pixels:
            return self.too_many_pixels(pixels)
        if isinstance(image, JpegImageFile) and (scans := count_scans(data, self.max_scans)) > self.max_scans:
            return f"it has {scans:,} scans; more than data.max_scans={self.max_scans}"
        return ""

    def too_many_pixels(self, pixels: int) -> str:
        return f"it has {pixels:,} pixels; more than data.max_pixels={self.max_pixels}"

    def raise_pillows(self) -> None:
        """Pillow warns of images beyond a limit of its own for the whole process, and refuses twice as large ones."""
        if Image.MAX_IMAGE_PIXELS is not None and self.max_pixels > 2 * Image.MAX_IMAGE_PIXELS:
            Image.MAX_IMAGE_PIXELS = self.max_pixels


USUAL_LIMITS = Limits.of(DataConfig())


def count_scans(data: bytes, enough: int = 0) -> int:
    """The scans of a JPEG, as libjpeg meets them; or an upper bound, if that is no more than `enough`."""
    bound = data.count(b"\xff\xda")
    if bound <= enough:
        return bound
    scans, at = 0, 2
    while found := MARKER.search(data, at):
        marker, at = data[found.end() - 1], found.end()
        if marker == END and scans:
            break
        scans += marker == SCAN
        if marker >= FIRST_WITH_LENGTH and marker not in WITHOUT_LENGTH:
            at += max(2, int.from_bytes(data[at : at + 2], "big"))
    return scans
