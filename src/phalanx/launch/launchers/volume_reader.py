"""`python -m phalanx.launch.launchers.volume_reader RUN`: writes a run's small files to standard output, as tar.

It runs in a pod that has the volume. Checkpoints are only named, by empty folders: a launcher asks which there are.
"""

import sys
import tarfile
from pathlib import Path

from phalanx.errors import UserError
from phalanx.roles.process import run_process
from phalanx.runs.events import EVENTS_FILE

_FILES = (
    "*.yaml",
    "*.json",
    "*.jsonl",
    "*.txt",
    "*.tsv",
    "*.png",
    "*.svg",
    "logs/*",
    "code/**/*",
    "code-before-*/**/*",
)


def main() -> int:
    run = Path(sys.argv[1])
    if not (run / EVENTS_FILE).is_file():
        there = sorted(path.parent.name for path in run.parent.glob(f"*/{EVENTS_FILE}"))
        raise UserError(
            f"there is no run {run} on the volume",
            why=f"{run.parent} has {', '.join(there[-8:])}"
            if there
            else f"there are no runs in {run.parent.absolute()}",
            remedy="name the run by its path on the volume, such as runs/NAME",
        )
    with tarfile.open(fileobj=sys.stdout.buffer, mode="w|gz") as archive:
        for path in sorted({path for pattern in _FILES for path in run.glob(pattern) if path.is_file()}):
            archive.add(path, str(path.relative_to(run)), recursive=False)
        for path in sorted(run.glob("checkpoints/step-*")):
            archive.add(path, str(path.relative_to(run)), recursive=False)
    return 0


if __name__ == "__main__":
    run_process(main)
