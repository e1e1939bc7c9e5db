"""What a cluster that gives out resources is to give each worker; None leaves it to the cluster's own default."""

from dataclasses import dataclass


@dataclass(frozen=True)
class WorkerResources:
    cpus: int | None = None
    gpus: int | None = None
    memory_mb: int | None = None

    def times(self, workers: int) -> "WorkerResources":
        """For so many workers together."""
        return WorkerResources(*(each and each * workers for each in (self.cpus, self.gpus, self.memory_mb)))
