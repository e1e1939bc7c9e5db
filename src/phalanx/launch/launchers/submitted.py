"""RUN/batch.json: the scheduler and number of a run's batch job. `status` and `stop` query that scheduler."""

import json
from dataclasses import dataclass
from pathlib import Path

from phalanx.config.text import read_json
from phalanx.launch.launchers.scheduler import Scheduler, State
from phalanx.launch.launchers.sge import Pbs, Sge
from phalanx.launch.launchers.slurm import Slurm
from phalanx.runs.folder import write_run_file

SCHEDULERS: dict[str, type[Scheduler]] = {"slurm": Slurm, "sge": Sge, "pbs": Pbs}
_RECORD = "batch.json"


@dataclass(frozen=True)
class Submitted:
    """A submitted job."""

    scheduler: str
    job: str

    def write(self, run: Path) -> None:
        write_run_file(run / _RECORD, json.dumps({"scheduler": self.scheduler, "job": self.job}) + "\n")

    def state(self) -> State:
        return SCHEDULERS[self.scheduler]().state(self.job)

    def cancel(self) -> None:
        SCHEDULERS[self.scheduler]().cancel(self.job)


def submitted_job(run: Path | None) -> Submitted | None:
    """A run's batch job, if it has one that has not ended."""
    try:
        data = read_json((run / _RECORD).read_bytes()) if run is not None else None
        found = Submitted(data["scheduler"], data["job"]) if data else None
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return found if found is not None and found.state().kind != "ended" else None
