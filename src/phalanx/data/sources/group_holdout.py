"""The validation holdout of data with groups: whole groups, with about the same share of every class."""

import numpy as np

from phalanx.data.order import Indices
from phalanx.data.sources.labelled import Labels
from phalanx.data.sources.stratify import group_rows, random_keys

_PASSES = 10  # over all groups, at most, to come nearer to the share


def grouped_holdout(labels: Labels, groups: Indices, share: float) -> Indices:
    """The samples that are held out: as near to `share` of each class as changes of single groups get.

    Every class keeps a group for training: one that is in a single group is not validated. The result is a pure
    function of labels and groups, the same for every seed of a run.
    """
    state = _Holdout(labels, groups, share)
    order = np.argsort(random_keys(state.num_groups), kind="stable").tolist()
    for group in order:  # fill up to the share, without exceeding it
        if state.fits(group):
            state.change(group)
    for _ in range(_PASSES):
        changed = False
        for group in order:
            if state.improves(group):
                state.change(group)
                changed = True
        if not changed:
            break
    state.cover_missing(order)
    return np.flatnonzero(np.array(state.out, dtype=bool)[groups]).astype(np.int64)


class _Holdout:
    """Which groups are out, and how many samples of each class are in them."""

    def __init__(self, labels: Labels, groups: Indices, share: float) -> None:
        self._rows, sizes = group_rows(labels, groups)
        self._sizes: list[int] = sizes.tolist()
        self._wanted = [share * size for size in self._sizes]
        self._have = [0] * len(self._sizes)
        self._left = [0] * len(self._sizes)  # groups of each class that training keeps
        for row in self._rows:
            for label, _ in row:
                self._left[label] += 1
        self.out = [False] * len(self._rows)

    @property
    def num_groups(self) -> int:
        return len(self._rows)

    def fits(self, group: int) -> bool:
        """Whether no class exceeds its share with this group, by more than half a sample."""
        row = self._rows[group]
        return self._can_spare(group) and all(self._have[c] + count <= self._wanted[c] + 0.5 for c, count in row)

    def improves(self, group: int) -> bool:
        """Whether changing this group brings the classes' shares nearer to what is wanted, in squares."""
        sign, change = (-1 if self.out[group] else 1), 0.0
        for c, count in self._rows[group]:
            change += (2 * sign * (self._have[c] - self._wanted[c]) * count + count**2) / self._sizes[c] ** 2
        return change < -1e-12 and (self.out[group] or self._can_spare(group))

    def change(self, group: int) -> None:
        """Hold a group out, or give it back to training."""
        sign = -1 if self.out[group] else 1
        for c, count in self._rows[group]:
            self._have[c] += sign * count
            self._left[c] -= sign
        self.out[group] = not self.out[group]

    def cover_missing(self, order: list[int]) -> None:
        """Hold out the smallest group of each class that validation lacks, where training can spare one."""
        groups_of: dict[int, list[int]] = {}
        for group in order:
            for c, _ in self._rows[group]:
                if not self._have[c]:
                    groups_of.setdefault(c, []).append(group)
        for c in sorted(groups_of):
            able = [group for group in groups_of[c] if not self.out[group] and self._can_spare(group)]
            if able and not self._have[c]:
                self.change(min(able, key=lambda group: sum(count for _, count in self._rows[group])))

    def _can_spare(self, group: int) -> bool:
        row = self._rows[group]
        return bool(row) and all(self._left[c] > 1 for c, _ in row)
