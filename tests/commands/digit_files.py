"""The validation digits as image files in class folders, as a user would have them."""

from pathlib import Path

from PIL import Image

from phalanx.data.sources.embedded import open_digits


def write_digits(folder: Path, count: int | None = None) -> Path:
    """The first `count` of them, or all."""
    source = open_digits("val", channels=1)
    for index in range(len(source) if count is None else count):
        path = folder / source.classes[source.labels[index]] / f"{index:03d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(source.images[source.rows[index], :, :, 0]).save(path)
    return folder
