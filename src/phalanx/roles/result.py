"""What one process of a job ended with."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Result:
    """The exit code, and the run's folder where the process knows it."""

    exit_code: int = 0
    folder: Path | None = None
