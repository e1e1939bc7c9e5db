"""The result of one process of a job."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Result:
    """The exit code, and the run folder if the process knows it."""

    exit_code: int = 0
    folder: Path | None = None
