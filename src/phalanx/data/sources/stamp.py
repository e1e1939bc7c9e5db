"""The size and time of a file: another stamp means that the file has changed."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Stamp:
    """Size and modification time. A missing file has the size -1."""

    size: int
    mtime_ns: int

    @classmethod
    def of(cls, path: Path) -> "Stamp":
        try:
            status = path.stat()
        except OSError:
            return cls(-1, 0)
        return cls(status.st_size, status.st_mtime_ns)
