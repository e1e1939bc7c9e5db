"""From the names of loggers to loggers, and the packages that each needs."""

import importlib.util
from collections.abc import Callable, Sequence

from phalanx.observe.loggers.base import Logger, missing_package
from phalanx.observe.loggers.csv_file import CsvLogger
from phalanx.observe.loggers.mlflow_run import MlflowLogger
from phalanx.observe.loggers.tensorboard_files import TensorBoardLogger
from phalanx.observe.loggers.trackio_run import TrackioLogger
from phalanx.observe.loggers.wandb_run import WandbLogger

LOGGERS: dict[str, Callable[[], Logger]] = {
    "tensorboard": TensorBoardLogger,
    "wandb": WandbLogger,
    "mlflow": MlflowLogger,
    "trackio": TrackioLogger,
    "csv": CsvLogger,
}
_PACKAGES = {"wandb": "wandb", "mlflow": "mlflow", "trackio": "trackio"}  # the others need none


def require_packages(names: Sequence[str]) -> None:
    """Refuse a logger whose package is not installed, before any work is done."""
    for name in names:
        package = _PACKAGES.get(name)
        if package is not None and importlib.util.find_spec(package) is None:
            raise missing_package(name, package)
