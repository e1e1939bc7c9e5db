"""Find the slowest worker of a run, and what it was slow at, from the times of all workers."""

from dataclasses import dataclass, field

_WORK = {"data_s": "waiting for data", "compute_s": "computing", "update_s": "updating"}


@dataclass(frozen=True)
class Slowest:
    """The slowest worker, by how much of the others' time, and at what."""

    rank: int
    share: float
    part: str  # data, compute or update


@dataclass
class Slowness:
    """Seconds of each worker by kind of work. `exchange_s` does not count: it includes waiting for slower workers."""

    ranks: list[dict[str, float]] = field(default_factory=list)

    def add(self, rows: list[dict[str, float]]) -> None:
        if not self.ranks:
            self.ranks = [dict.fromkeys(_WORK, 0.0) for _ in rows]
        for total, row in zip(self.ranks, rows, strict=True):
            for name in _WORK:
                total[name] += row[name]

    def slowest(self) -> Slowest | None:
        """The slowest worker and what it was slow at, compared with the mean of the others; None of one alone."""
        if len(self.ranks) < 2:
            return None
        sums = [sum(row.values()) for row in self.ranks]
        slowest = max(range(len(sums)), key=sums.__getitem__)
        others = (sum(sums) - sums[slowest]) / (len(sums) - 1)
        excess = {
            name: self.ranks[slowest][name]
            - sum(row[name] for rank, row in enumerate(self.ranks) if rank != slowest) / (len(sums) - 1)
            for name in _WORK
        }
        return Slowest(
            slowest, sums[slowest] / max(others, 1e-9) - 1, max(excess, key=excess.__getitem__).removesuffix("_s")
        )

    def sentence(self) -> str | None:
        """The same in words."""
        found = self.slowest()
        if found is None:
            return None
        return f"worker {found.rank} was slowest, by {100 * found.share:.0f} %, at {_WORK[f'{found.part}_s']}"
