"""What the sockets of a process are for: noted in the job's folder on this host, for `phalanx doctor --job`."""

import contextlib
import json
import os
from pathlib import Path

JOB_FOLDER = "PHALANX_JOB_FOLDER"  # of a job's processes on this host; only their user can open it
HEARTBEAT = "heartbeats of workers"
LANES = "gradients, parameters and batches: large messages"
REACH = "check that hosts reach one another"


def note_listener(purpose: str, endpoint: str) -> None:
    """Note what this process listens for at an endpoint. Other launchers make no folder: then nothing is noted."""
    folder = os.environ.get(JOB_FOLDER)
    if folder:
        with contextlib.suppress(OSError), _notes(Path(folder), os.getpid()).open("a", encoding="utf-8") as file:
            file.write(json.dumps([endpoint.removeprefix("tcp://"), purpose]) + "\n")


def noted_listeners(folder: Path, pid: int) -> dict[str, str]:
    """What a process has noted: {endpoint: purpose}."""
    try:
        lines = _notes(folder, pid).read_text(encoding="utf-8").splitlines()
        return dict(json.loads(line) for line in lines)
    except (OSError, ValueError):
        return {}


def _notes(folder: Path, pid: int) -> Path:
    return folder / f"listeners-{pid}.jsonl"
