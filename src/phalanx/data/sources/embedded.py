"""Data that needs no files: scikit-learn's digits, and synthetic images for measuring speed."""

import contextlib
import gzip
import importlib.util
from pathlib import Path

import numpy as np
import numpy.typing as npt

from phalanx.config.schema import SyntheticConfig
from phalanx.data.base import Pixels
from phalanx.data.random import bits
from phalanx.data.sources.arrays import ArraySource, array_source
from phalanx.data.sources.labelled import Part

DIGITS_IMAGE_SIZE = 16  # twice their own 8: room for a network that halves its input a few times
_DIGITS_FILE = ("datasets", "data", "digits.csv.gz")
BANK_IMAGES = 256
BANK_BYTES = 64 * 2**20


def open_digits(part: Part, *, channels: int | None) -> ArraySource:
    """1,797 handwritten digits of 8×8 pixels. Every fifth sample of each class is validation, whatever the seed."""
    values, labels = _digits()
    images = np.round(values * (255 / 16)).astype(np.uint8).reshape(-1, 8, 8, 1)
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


def _digits() -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    """64 values (0 to 16) and a label per digit, from scikit-learn's data file: importing it takes two seconds."""
    package = importlib.util.find_spec("sklearn")
    for folder in package.submodule_search_locations or () if package else ():
        with contextlib.suppress(OSError, ValueError), gzip.open(Path(folder, *_DIGITS_FILE), "rt") as file:
            table = np.loadtxt(file, delimiter=",")
            return table[:, :-1], table[:, -1].astype(np.int64)
    from sklearn.datasets import (
        load_digits,
    )  # another release may keep them elsewhere; if it is not installed, this raises

    digits = load_digits()
    return digits.data, digits.target.astype(np.int64)


def open_synthetic(part: Part, config: SyntheticConfig, *, channels: int | None) -> ArraySource:
    """Random images of any size and number, repeated from a bank of at most 256, with labels in turn."""
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
