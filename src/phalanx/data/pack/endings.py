"""Endings of file names by content: a PNG that was called .jpg is a .png."""

NETPBM = ((1, "pbm"), (2, "pgm"), (3, "ppm"), (4, "pbm"), (5, "pgm"), (6, "ppm"))
MAGICS = (
    (b"\xff\xd8\xff", "jpg"),
    (b"\x89PNG\r\n\x1a\n", "png"),
    (b"GIF8", "gif"),
    (b"BM", "bmp"),
    (b"II*\0", "tif"),
    (b"MM\0*", "tif"),
    (b"II+\0", "tif"),  # BigTIFF
    (b"MM\0+", "tif"),
    (b"\0\0\0\x0cjP  ", "jp2"),
    (b"\xff\x4f\xff\x51", "jp2"),  # JPEG 2000 without the boxes around it
    *((b"P%d%c" % (number, blank), kind) for number, kind in NETPBM for blank in b"\n\r\t "),
)
SPELLINGS = {
    "jpg": ("jpg", "jpeg", "jpe", "jfif"),
    "tif": ("tif", "tiff"),
    "pbm": ("pbm", "pnm"),
    "pgm": ("pgm", "pnm"),
    "ppm": ("ppm", "pnm"),
}


def ending_of(data: bytes) -> str:
    """The ending for a file of this content; jpg if it is unknown, which readers then report."""
    if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        return "webp"
    if data[4:8] == b"ftyp" and b"avi" in data[8:32]:
        return "avif"
    return next((ending for magic, ending in MAGICS if data.startswith(magic)), "jpg")


def with_ending_of(stem: str, original: str, data: bytes) -> str:
    """A file's name for this content: with its original ending, if that is one of the content's."""
    ending = ending_of(data)
    return f"{stem}.{original}" if original.lower() in SPELLINGS.get(ending, (ending,)) else f"{stem}.{ending}"
