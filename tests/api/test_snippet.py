"""The first lines of code that a user sees run as they are written."""

import gzip
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import phalanx
from phalanx.data.sources.embedded import open_digits
from tests.commands.digit_files import write_digits

TRAIN = """
run = phalanx.train("digits", epochs=5)                                  # as `phalanx train digits --epochs 5`
run = phalanx.train(data="photos/", model="convnext_atto", workers=2)    # the same flags, by the same names
"""
USE = """
run.best.top1, run.history("val/top1"), run.figure()                      # numbers, curves, a matplotlib figure
model = run.model()                                                       # an nn.Module in eval mode, on the best weights
run.predict(["cat.jpg", image]), run.evaluate("other/"), run.resume()
phalanx.load("runs/digits-…"), phalanx.recipe("cifar10-fast"), phalanx.runs()
"""  # noqa: E501 - as it is written


def write_idx(folder: Path, part: str, count: int) -> None:
    """Digits as MNIST's files, of 32×32 pixels: 30 epochs of these take seconds."""
    source = open_digits("train", channels=1)
    images = source.images[source.rows[:count], :, :, 0].repeat(4, axis=1).repeat(4, axis=2)
    folder.mkdir(exist_ok=True)
    for name, array in ((f"{part}-images-idx3-ubyte", images), (f"{part}-labels-idx1-ubyte", source.labels[:count])):
        header = struct.pack(f">I{array.ndim}I", 0x800 | array.ndim, *array.shape)
        (folder / f"{name}.gz").write_bytes(gzip.compress(header + array.astype(np.uint8).tobytes()))


@pytest.mark.slow
@pytest.mark.usefixtures("one_core")
def test_the_snippet_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_idx(tmp_path / "photos", "train", 24)
    write_idx(tmp_path / "photos", "t10k", 10)
    write_digits(tmp_path / "other", 20)
    image = Image.fromarray(np.zeros((20, 30, 3), dtype=np.uint8))
    image.save("cat.jpg")
    names: dict[str, Any] = {"phalanx": phalanx, "image": image}
    exec(TRAIN, names)
    run = names["run"]
    assert (run.finished, run.config.exchange.workers) == (True, 2)
    Path("runs/digits-…").symlink_to(next(Path("runs").glob("digits-*")).absolute())
    exec(USE, names)
    assert len(run.history("val/top1").steps) == 30
    assert not names["model"].training
