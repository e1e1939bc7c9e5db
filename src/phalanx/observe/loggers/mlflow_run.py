"""MLflow: a run in the tracking server that MLFLOW_TRACKING_URI names, or in mlflow.db here."""

import importlib
import logging
from collections.abc import Mapping
from typing import Any

from phalanx.observe.loggers.base import LoggedRun

NAME = "mlflow"
_PARAMS = 100  # at most so many in one request
_LONGEST = 6000  # characters of a parameter's value


class MlflowLogger:
    """Metrics with step and time, settings as parameters, config.yaml and the confusion matrix as artifacts."""

    def __init__(self) -> None:
        self._client: Any = None
        self._metric: Any = None
        self._id = ""
        self._run: LoggedRun | None = None

    def begin(self, run: LoggedRun) -> None:
        logging.getLogger("mlflow.store.db.utils").setLevel(logging.WARNING)  # it tells of each table that it makes
        mlflow = importlib.import_module("mlflow")
        entities = importlib.import_module("mlflow.entities")
        self._metric, self._run = entities.Metric, run
        known = run.known(NAME)
        uri = known.get("tracking_uri") or mlflow.get_tracking_uri()
        self._client = mlflow.MlflowClient(tracking_uri=uri)
        if known.get("run_id"):
            self._id = known["run_id"]
            self._client.update_run(self._id, status="RUNNING")
            return
        found = self._client.get_experiment_by_name(run.project)
        experiment = found.experiment_id if found is not None else self._client.create_experiment(run.project)
        self._id = self._client.create_run(experiment, run_name=run.name).info.run_id
        run.keep(NAME, {"run_id": self._id, "tracking_uri": uri})
        params = [entities.Param(name, str(value)[:_LONGEST]) for name, value in run.config.items()]
        for first in range(0, len(params), _PARAMS):
            self._client.log_batch(self._id, params=params[first : first + _PARAMS])
        self._client.log_text(self._id, run.recipe, "config.yaml")

    def rewind(self, step: int) -> None:
        """MLflow keeps all points, with their times."""

    def numbers(self, step: int, time_s: float, values: Mapping[str, float]) -> None:
        when = int(1000 * time_s)
        self._client.log_batch(self._id, metrics=[self._metric(key, x, when, step) for key, x in values.items()])

    def finish(self, *, failed: bool) -> None:
        picture = self._run.confusion if self._run is not None else None
        if picture is not None:
            self._client.log_artifact(self._id, str(picture))
        self._client.set_terminated(self._id, status="FAILED" if failed else "FINISHED")
