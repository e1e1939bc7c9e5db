"""What a command line asks `phalanx train` for; light, so that mistakes in it are told at once."""

from dataclasses import dataclass
from pathlib import Path

from phalanx.config.resolve import Resolved
from phalanx.runs.folder import RunFolder


@dataclass(frozen=True)
class Request:
    """What the command line asks for."""

    resolved: Resolved
    command: str
    out: Path | None = None
    resume: RunFolder | None = None
    at_step: int | None = None  # whose checkpoint a resumed run goes on from; default: the newest
    init_from: Path | None = None
