"""The validation holdout of samples with several labels: iterative stratification."""

import numpy as np

from phalanx.data.order import Indices
from phalanx.data.random import bits
from phalanx.data.sources.labelled import Labels


def multi_label_holdout(labels: Labels, share: float) -> Indices:
    """The holdout: about `share` of the samples of each label, at least one of two. The same for every seed of a run.

    Iterative stratification (Sechidis, Tsoumakas and Vlahavas, 2011) in two parts: the rarest label that still has
    samples is divided first, since later ones leave less choice. Each of its samples goes to the part that lacks more
    of this label; if both lack the same, to the one that lacks more samples.
    """
    # A sample without any label has the label "none", so that the holdout has its share of them too.
    marked = np.concatenate([labels != 0, ~labels.any(axis=1, keepdims=True)], axis=1)
    counts = marked.sum(axis=0)
    held = np.clip(np.rint(counts * share), np.minimum(1, counts - 1), counts - 1).astype(np.int64)
    lacks = np.stack([counts - held, held])  # by part (training, holdout) and label
    of_part = np.array([len(labels) - round(len(labels) * share), round(len(labels) * share)])
    keys = bits(0, "held out", 0, np.arange(len(labels), dtype=np.int64))[:, 0]
    part = np.full(len(labels), -1, dtype=np.int64)
    left = counts.copy()
    while left.any():
        label = int(np.where(left > 0, left, len(labels) + 1).argmin())
        waiting = np.flatnonzero(marked[:, label] & (part < 0))
        for sample in waiting[np.argsort(keys[waiting], kind="stable")].tolist():
            training, holdout = (lacks[0, label], of_part[0]), (lacks[1, label], of_part[1])
            chosen = int(holdout > training)
            part[sample] = chosen
            lacks[chosen] -= marked[sample]
            of_part[chosen] -= 1
            left -= marked[sample]
    return np.flatnonzero(part == 1)
