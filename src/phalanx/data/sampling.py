"""How often each sample appears in an epoch: once, or so that rare classes count more. The order stays a pure function.

`shuffle` shows each sample once. `balanced` keeps the epoch's length and shows all classes equally often. `oversample`
and `repeat-factor` show each sample at least once and repeat those of rare classes, so that the epoch grows.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from phalanx.config.schema import DataConfig
from phalanx.data.order import Indices, balanced_order, balanced_set_order, drawn_order, epoch_order


class Sampler(Protocol):
    """The samples of each epoch, and how many they are."""

    @property
    def epoch_samples(self) -> int: ...

    def order(self, seed: int, epoch: int) -> Indices:
        """The samples of an epoch; a repeat has a number of its own, see `repeats_of`."""
        ...


@dataclass(frozen=True)
class Shuffled:
    """Every sample once."""

    epoch_samples: int

    def order(self, seed: int, epoch: int) -> Indices:
        return epoch_order(seed, epoch, self.epoch_samples)


@dataclass(frozen=True)
class Balanced:
    """All classes equally often, as many samples as there are."""

    labels: Indices

    @property
    def epoch_samples(self) -> int:
        return len(self.labels)

    def order(self, seed: int, epoch: int) -> Indices:
        of_labels = balanced_order if self.labels.ndim == 1 else balanced_set_order
        return of_labels(seed, epoch, self.labels)


@dataclass(frozen=True)
class Oversampled:
    """Every sample at least once. `strata` has the class that decides for each sample, `shares` the places of each."""

    strata: Indices
    shares: Indices

    @property
    def epoch_samples(self) -> int:
        return int(self.shares.sum())

    def order(self, seed: int, epoch: int) -> Indices:
        return drawn_order(seed, epoch, self.strata, self.shares)


def make_sampler(config: DataConfig, labels: Indices) -> Sampler:
    """The sampler of a training split with these labels: (n,) class numbers, or (n, classes) of 0 and 1."""
    if config.sampling == "shuffle":
        return Shuffled(len(labels))
    if config.sampling == "balanced":
        return Balanced(labels)
    counts = labels.sum(axis=0) if labels.ndim == 2 else np.bincount(labels)
    strata = _rarest(labels, counts) if labels.ndim == 2 else labels
    members = np.bincount(strata, minlength=len(counts))
    factors = np.ones(len(members))
    factors[: len(counts)] = _repeat_factors(config, counts, len(labels))
    return Oversampled(strata, np.rint(members * factors).astype(np.int64))


def _repeat_factors(config: DataConfig, counts: Indices, num_samples: int) -> npt.NDArray[np.float64]:
    """How often the samples of each class appear in an epoch, on average; at least once."""
    present = np.maximum(1, counts)
    if config.sampling == "oversample":
        return np.asarray(present.max() / present)
    # As in LVIS (Gupta et al. 2019): the square root of threshold over frequency.
    threshold = present.max() if config.repeat_threshold is None else config.repeat_threshold * num_samples
    return np.maximum(1.0, np.sqrt(threshold / present))


def _rarest(labels: Indices, counts: Indices) -> Indices:
    """The rarest class of each sample with several labels; those without any have a number of their own."""
    last = len(counts)
    order = np.argsort(counts, kind="stable")
    rank = np.where(labels[:, order] > 0, np.arange(last), last).min(axis=1, initial=last)
    rarest: Indices = np.append(order, last)[rank]
    return rarest
