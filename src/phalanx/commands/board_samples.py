"""Pictures of augmented batches for the board: drawn one at a time, each once, in a process that ends afterwards."""

import subprocess
import sys
import tempfile
import threading
from dataclasses import dataclass, field
from pathlib import Path

from phalanx.errors import UserError, parse_error
from phalanx.runs.folder import RunFolder

_MOST_S = 120.0  # the data may have to be indexed first
_KEPT = 8  # pictures


@dataclass
class Samples:
    """From a run to a PNG of its images as its model sees them. Thread-safe."""

    run_code: bool  # also for runs with code of their own
    _drawn: dict[tuple[Path, int], bytes] = field(default_factory=dict)  # by run, and when its settings changed
    _one_at_a_time: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, run: Path) -> bytes:
        try:
            key = run, RunFolder(run).config.stat().st_mtime_ns
        except OSError as error:
            raise UserError("no samples can be drawn", why=f"config.yaml: {error.strerror}") from error
        with self._one_at_a_time:
            if key not in self._drawn:
                self._drawn[key] = self._draw(run)
                while len(self._drawn) > _KEPT:
                    del self._drawn[next(iter(self._drawn))]
            return self._drawn[key]

    def _draw(self, run: Path) -> bytes:
        """In a process of its own: torch, and the data, do not stay in the board's memory."""
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / "samples.png"
            command = [sys.executable, "-m", "phalanx.commands.augmented", str(run), str(out)]
            try:
                done = subprocess.run(
                    command + ["--code"] * self.run_code,
                    capture_output=True,
                    text=True,
                    timeout=_MOST_S,
                    check=False,
                    stdin=subprocess.DEVNULL,
                )
            except subprocess.TimeoutExpired as error:
                raise UserError("no samples", why=f"the data did not open within {_MOST_S:.0f} s") from error
            if done.returncode == 0 and out.is_file():
                return out.read_bytes()
        raise parse_error(done.stderr.splitlines()) or UserError(
            "no samples can be drawn", why=(done.stderr.strip().splitlines() or ["unknown"])[-1]
        )
