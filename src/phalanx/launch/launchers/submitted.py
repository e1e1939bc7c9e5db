"""RUN/batch.json: the scheduler and number of a run's submitted job. `status` and `stop` query that scheduler."""

import json
from dataclasses import dataclass
from pathlib import Path

from phalanx.config.text import read_json
from phalanx.errors import UserError
from phalanx.launch.launchers.kubernetes_job import KubernetesJob, cluster_job
from phalanx.launch.launchers.scheduler import Scheduler, State
from phalanx.launch.launchers.sge import Pbs, Sge
from phalanx.launch.launchers.slurm import Slurm
from phalanx.runs.folder import write_run_file

SCHEDULERS: dict[str, type[Scheduler]] = {"slurm": Slurm, "sge": Sge, "pbs": Pbs}
KUBERNETES = "k8s"
_RECORD = "batch.json"


@dataclass(frozen=True)
class Submitted:
    """A submitted job."""

    scheduler: str
    job: str

    def write(self, run: Path) -> None:
        write_run_file(run / _RECORD, json.dumps({"scheduler": self.scheduler, "job": self.job}) + "\n")

    @property
    def in_cluster(self) -> KubernetesJob | None:
        """The job, where Kubernetes has it."""
        return KubernetesJob.parse(self.job) if self.scheduler == KUBERNETES else None

    def state(self) -> State:
        cluster = self.in_cluster
        return cluster.state() if cluster else SCHEDULERS[self.scheduler]().state(self.job)

    def cancel(self) -> None:
        cluster = self.in_cluster
        if cluster is not None:
            kind = cluster.look(events=False).kind
            if kind == "gone":
                raise UserError(
                    f"job {cluster} is not in the cluster",
                    why="it was deleted, or it is in another namespace or cluster",
                    remedy="kubectl get jobs -A lists those that are there",
                )
            return cluster.stop_now() if kind == "stopping" else cluster.stop()
        return SCHEDULERS[self.scheduler]().cancel(self.job)


def submitted_job(run: Path | None) -> Submitted | None:
    """A run's submitted job, if it has one that has not ended. In a cluster, one that has ended counts, too."""
    named = cluster_job(run)
    if named is not None:
        return Submitted(KUBERNETES, str(named))
    try:
        data = read_json((run / _RECORD).read_bytes()) if run is not None else None
        found = Submitted(data["scheduler"], data["job"]) if data else None
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if found is None or found.in_cluster is not None:
        return found
    return found if found.state().kind != "ended" else None
