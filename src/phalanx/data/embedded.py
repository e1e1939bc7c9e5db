"""Data that needs no files: scikit-learn's digits, and synthetic images for measuring speed."""

import numpy as np

from phalanx.config.schema import SyntheticConfig
from phalanx.data.arrays import ArraySource, array_source
from phalanx.data.base import Pixels
from phalanx.data.labelled import Part
from phalanx.data.random import bits

DIGITS_IMAGE_SIZE = 16  # twice their own 8: room for a network that halves its input a few times
BANK_IMAGES = 256
BANK_BYTES = 64 * 2**20


def open_digits(part: Part, *, channels: int | None) -> ArraySource:
    """1,797 handwritten digits of 8×8 pixels. Every fifth sample of each class is validation, whatever the seed."""
    from sklearn.datasets import load_digits  # takes a second, so only those wait who use it

    digits = load_digits()
    images = np.round(digits.images * (255 / 16)).astype(np.uint8)[..., None]
    labels = digits.target.astype(np.int64)
    place_in_class = np.zeros(len(labels), dtype=np.int64)
    for label in range(10):
        of_class = np.flatnonzero(labels == label)
        place_in_class[of_class] = np.arange(len(of_class))
    is_val = place_in_class % 5 == 4
    rows = np.flatnonzero(is_val if part == "val" else ~is_val).astype(np.int64)
    return array_source(
        f"digits {part}",
        "scikit-learn digits",
        images,
        labels[rows],
        [str(digit) for digit in range(10)],
        image_size=DIGITS_IMAGE_SIZE,
        channels=channels,
        rows=rows,
    )


def open_synthetic(part: Part, config: SyntheticConfig, *, channels: int | None) -> ArraySource:
    """Random images of any size and number, from a bank of at most 256 that repeats, with labels in turn."""
    samples = config.val_samples if part == "val" else config.samples
    bank = _bank(part, samples, config, config.channels if channels is None else channels)
    index = np.arange(samples, dtype=np.int64)
    return array_source(
        f"synthetic {part}",
        f"synthetic random images ({len(bank)} distinct)",
        bank,
        index % config.classes,
        [str(number) for number in range(config.classes)],
        image_size=config.size,
        channels=None,
        rows=index % len(bank),
    )


def _bank(part: Part, samples: int, config: SyntheticConfig, channels: int) -> Pixels:
    """The distinct images. Their number is a multiple of the classes where possible: an image keeps one label."""
    num_bytes = config.size * config.size * channels
    count = max(1, min(BANK_IMAGES, samples, BANK_BYTES // num_bytes))
    if config.classes <= count < samples:
        count -= count % config.classes
    bank = np.empty((count, config.size, config.size, channels), dtype=np.uint8)
    for i in range(count):
        words = bits(0, f"synthetic {part}", 0, np.array([i], dtype=np.int64), -(-num_bytes // 8))
        # Little-endian everywhere, so that the images are the same on every machine.
        bank[i] = words.astype("<u8").view(np.uint8)[0, :num_bytes].reshape(bank.shape[1:])
    return bank
