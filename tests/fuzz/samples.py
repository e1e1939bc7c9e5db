"""Small files of our own that fuzzing starts from."""

from pathlib import Path
from typing import Any

from tests.data.jpegs import ODD_SAMPLING, jpeg, oriented, photograph

CORPUS = Path(__file__).parents[1] / "corpus"
KINDS: tuple[tuple[str, dict[str, Any]], ...] = (
    *(("RGB", {"subsampling": number}) for number in range(3)),
    ("RGB", {"progressive": True}),
    ("RGB", {"restart_marker_blocks": 3}),
    ("RGB", {"progressive": True, "restart_marker_blocks": 2}),
    ("RGB", {"optimize": True, "quality": 30}),
    ("RGB", {"quality": 100, "subsampling": 0}),
    ("RGB", {"exif": oriented(6)}),
    ("L", {}),
    ("L", {"progressive": True}),
    ("CMYK", {}),
)


def jpegs() -> list[bytes]:
    """JPEGs of all kinds, made by Pillow, and those that once showed a fault."""
    made = [
        jpeg(photograph(height, width, number), mode, **options)
        for number, (height, width) in enumerate(((40, 50), (33, 47), (16, 16), (61, 107)))
        for mode, options in KINDS
    ]
    return [*made, *ODD_SAMPLING.values(), *(path.read_bytes() for path in corpus("jpeg"))]


def corpus(target: str) -> list[Path]:
    return sorted((CORPUS / target).glob("*"))
