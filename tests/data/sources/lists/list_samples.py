"""What tests of lists share: image files that differ, and an independent reader (pandas and Pillow) to compare with."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
from PIL import Image

from phalanx.config.schema import DataConfig
from phalanx.data.sources.folders import FileSource
from phalanx.data.sources.lists.open import open_list
from phalanx.errors import UserError
from tests.data.samples import FixedViews, noise

SIDE = 6


def write_files(folder: Path, names: Sequence[str]) -> Path:
    """A PNG image of other pixels under each name, whatever its ending."""
    for seed, name in enumerate(names):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(noise(SIDE, SIDE, 3, seed=seed + len(folder.name))).save(folder / name, "PNG")
    return folder


def opened(path: Path, classes: list[str] | None = None, **settings: Any) -> FileSource:
    return open_list(path, classes, channels=None, pool=None, config=DataConfig(**settings))


def written(path: Path, text: str, classes: list[str] | None = None, **settings: Any) -> FileSource:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode())
    return opened(path, classes, **settings)


def refused(path: Path, text: str, classes: list[str] | None = None, **settings: Any) -> UserError:
    with pytest.raises(UserError) as caught:
        written(path, text, classes, **settings)
    return caught.value


def assert_same_as_pandas(
    source: FileSource, frame: pandas.DataFrame, file_of: Callable[[Mapping[str, Any]], Path], label: str
) -> None:
    """Classes, labels and pixels as pandas and Pillow read them."""
    assert len(source) == len(frame)
    assert source.classes == sorted(frame[label].astype(str).unique())
    assert [source.classes[number] for number in source.labels] == frame[label].astype(str).tolist()
    assert_same_pixels(source, [file_of(row) for row in frame.to_dict("records")])


def assert_same_pixels(source: FileSource, files: Sequence[Path]) -> None:
    read = source.read(np.arange(len(source)), FixedViews(SIDE), 0, replace_bad=False)
    assert read.bad == []
    assert [Path(source.name(i)).resolve() for i in range(len(source))] == [file.resolve() for file in files]
    for pixels, file in zip(read.images, files, strict=True):
        with Image.open(file) as image:
            np.testing.assert_array_equal(pixels, np.asarray(image.convert("RGB")))
