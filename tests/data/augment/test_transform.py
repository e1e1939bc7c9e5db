"""The user's own transform: called once an image, with a generator that is the sample's own."""

from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
import torch

from phalanx.config.schema import AugmentConfig
from phalanx.custom import user_code
from phalanx.data.augment.framing import PadCrop
from phalanx.data.augment.pixels import pixel_ops
from phalanx.data.order import Share
from phalanx.data.pipeline import Pipeline
from phalanx.data.sources.arrays import ArraySource, array_source
from phalanx.errors import UserError

CODE = """
import torch

def speckle(image, generator, strength=40):
    noise = torch.randint(-strength, strength + 1, image.shape, generator=generator)
    return (image + noise).clamp(0, 255).to(torch.uint8)

def invert(image):
    return 255 - image

class Shift:
    def __init__(self, by):
        self.by = by

    def __call__(self, image, generator):
        return image.roll(self.by, dims=2)

def to_float(image, generator):
    return image / 255

def broken(image, generator):
    return image[7, 7, 7, 7]
"""


@pytest.fixture
def code(tmp_path: Path) -> Path:
    path = tmp_path / "own_transforms.py"
    path.write_text(CODE)
    return path


def source() -> ArraySource:
    pixels = np.random.default_rng(0).integers(0, 256, (24, 8, 8, 3), dtype=np.uint8)
    labels = np.arange(24, dtype=np.int64) % 4
    return array_source("made up", "made up", pixels, labels, list("abcd"), image_size=8, channels=None)


def batch(reference: str, share: Share | None = None, epoch: int = 0, threads: int = 1, **options: int) -> torch.Tensor:
    pixels = pixel_ops(AugmentConfig(transform=reference, options=options), seed=3)
    framing = PadCrop(8, 2, flip=0.5, seed=3)
    pipeline = Pipeline(source(), framing, seed=3, batch=24, share=share, pixels=pixels, threads=threads)
    with closing(pipeline.stream(epoch)) as batches:
        return next(batches).micro[0].images


def test_the_generator_is_the_samples_own(code: Path) -> None:
    whole = batch(f"{code}:speckle")
    for rank in range(2):
        assert torch.equal(batch(f"{code}:speckle", Share(rank, 2), threads=2), whole[12 * rank : 12 * rank + 12])
    assert not torch.equal(batch(f"{code}:speckle", epoch=1), whole)


def test_a_function_without_a_generator_and_a_class_with_options(code: Path) -> None:
    plain = batch(f"{code}:Shift", by=0)
    assert torch.equal(batch(f"{code}:invert"), 255 - plain)
    assert torch.equal(batch(f"{code}:Shift", by=2), plain.roll(2, dims=3))
    assert not torch.equal(batch(f"{code}:speckle", strength=3), batch(f"{code}:speckle", strength=90))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("to_float", "returned torch.float32"),
        ("broken", r"own_transforms.py, line \d+, in broken"),
        ("Shift", "missing a required argument: 'by'"),
        ("CODE", "there is no CODE"),
    ],
)
def test_what_is_wrong_with_it_is_said(code: Path, name: str, message: str) -> None:
    with pytest.raises(UserError, match=message), user_code():
        batch(f"{code}:{name}")
