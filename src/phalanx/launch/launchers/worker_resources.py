"""Resources of a worker; None is the cluster's default."""

from dataclasses import dataclass


@dataclass(frozen=True)
class WorkerResources:
    cpus: int | None = None
    gpus: int | None = None
    memory_mb: int | None = None

    def times(self, workers: int) -> "WorkerResources":
        """The sum for this number of workers."""
        return WorkerResources(*(each and each * workers for each in (self.cpus, self.gpus, self.memory_mb)))
