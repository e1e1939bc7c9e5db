"""profile.json and trace.json in a run's folder: where the time of some steps went."""

import json
from pathlib import Path
from typing import Any

from phalanx.config.text import read_json
from phalanx.errors import UserError
from phalanx.runs.folder import write_run_file

PROFILE_FILE = "profile.json"
TRACE_FILE = "trace.json"
VERSION = 1  # of the format of profile.json

Data = dict[str, Any]


def write_profile(folder: Path, profile: Data, trace: Data) -> None:
    """Write both. The trace comes first: who finds a profile finds its trace, too."""
    write_run_file(folder / TRACE_FILE, json.dumps(trace, separators=(",", ":")))
    write_run_file(folder / PROFILE_FILE, json.dumps({"version": VERSION, **profile}, separators=(",", ":")) + "\n")


def read_profile(folder: Path) -> Data:
    """The profile in a run's folder."""
    path = folder / PROFILE_FILE
    try:
        found = read_json(path.read_bytes())
    except FileNotFoundError as error:
        raise UserError(
            f"{folder} has no profile",
            why=f"there is no {PROFILE_FILE}",
            remedy="phalanx profile RECIPE makes one, in a folder of its own",
        ) from error
    except (OSError, ValueError) as error:
        raise _damaged(path, str(error)) from error
    if not isinstance(found, dict) or found.get("version") != VERSION:
        raise _damaged(path, f"it is not of version {VERSION} of the format")
    if not isinstance(found.get("workers"), list) or not found["workers"]:
        raise _damaged(path, "it names no workers")
    return found


def _damaged(path: Path, why: str) -> UserError:
    return UserError(f"{path} cannot be read as a profile", why=why[:200], remedy="make it again: phalanx profile")
