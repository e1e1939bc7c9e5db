"""Trees of tiny images, as people have them: each image has its own grey level, so that a test can tell them apart."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from phalanx.config.schema import DataConfig
from phalanx.data.base import Source
from phalanx.data.sources.open import Splits, open_data
from tests.data.samples import FixedViews, image_bytes


def make_tree(root: Path, *files: str) -> Path:
    """Make files: images by their endings, folders by a slash at the end, all others with a line of text."""
    for number, name in enumerate(files):
        path = root / name
        if name.endswith("/"):
            path.mkdir(parents=True, exist_ok=True)
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix.lower() in (".jpg", ".jpeg", ".png"):
            path.write_bytes(image_bytes(np.full((4, 4, 3), number, dtype=np.uint8)))
        else:
            path.write_text("not an image\n")
    return root


def several(folder: str, count: int, ending: str = ".jpg") -> list[str]:
    """Names of images in a folder."""
    return [f"{folder}/{folder.rpartition('/')[2]}_{number}{ending}" for number in range(count)]


def classes(parent: str, names: Iterable[str], count: int = 2, ending: str = ".jpg") -> list[str]:
    """Names of images in class folders."""
    return [image for name in names for image in several(f"{parent}/{name}".lstrip("/"), count, ending)]


def opened(source: str | Path, **settings: object) -> Splits:
    return open_data(DataConfig.model_validate({"source": str(source), **settings}), threads=0)


def by_class(source: Source, root: Path) -> dict[str, list[str]]:
    """The images of each class, relative to a folder, and read once: what a label says is what an image is."""
    found: dict[str, list[str]] = {name: [] for name in source.classes}
    for index, label in enumerate(source.labels.tolist()):
        found[source.classes[label]].append(str(Path(source.name(index)).relative_to(root)))
    read = source.read(np.arange(len(source)), FixedViews(4), 0, replace_bad=False)
    assert not read.bad
    return found
