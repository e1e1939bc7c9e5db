"""RUN/batch.json: the scheduler and number of a run's submitted job. `status` and `stop` query that scheduler."""

import json
import re
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
# Of all schedulers; a word that begins with a dash would be an option of their commands.
_NUMBER = re.compile(r"[A-Za-z0-9][\w.;\[\]/-]*")


@dataclass(frozen=True)
class Submitted:
    """A submitted job."""

    scheduler: str
    job: str

    def write(self, run: Path) -> None:
        write_run_file(run / _RECORD, json.dumps({"scheduler": self.scheduler, "job": self.job}) + "\n")

    @property
    def is_known(self) -> bool:
        """Whether the scheduler may be asked: a run's folder may be somebody else's."""
        return self.scheduler in (*SCHEDULERS, KUBERNETES) and bool(_NUMBER.fullmatch(self.job))

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
        found = Submitted(str(data["scheduler"]), str(data["job"])) if data else None
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if found is not None and not found.is_known:
        raise UserError(
            f"{run}/{_RECORD} names no job of a scheduler that Phalanx knows",
            why=f"scheduler {found.scheduler!r}, job {found.job!r}",
            remedy="the file was edited or damaged: ask the scheduler itself about the job",
        )
    if found is None or found.in_cluster is not None:
        return found
    return found if found.state().kind != "ended" else None
