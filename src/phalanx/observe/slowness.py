"""Find the slowest worker of a run, and what it was slow at, from the times of all workers."""

from dataclasses import dataclass, field

_WORK = {"data_s": "waiting for data", "compute_s": "computing", "update_s": "updating"}


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

    def sentence(self) -> str | None:
        """The slowest worker and what it was slow at, compared with the mean of the others."""
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
        work = max(excess, key=excess.__getitem__)
        return (
            f"worker {slowest} was slowest, by {100 * (sums[slowest] / max(others, 1e-9) - 1):.0f} %, at {_WORK[work]}"
        )
