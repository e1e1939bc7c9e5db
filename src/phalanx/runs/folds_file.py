"""folds.json: what a cross-validation is about, and what its folds have found. docs/run-folder.md documents it."""

import json
from pathlib import Path
from typing import Any

from phalanx.config.text import read_json
from phalanx.errors import UserError
from phalanx.runs.fold_paths import FOLDS_FILE
from phalanx.runs.folder import write_run_file


def write_folds(folder: Path, report: dict[str, Any]) -> None:
    write_run_file(folder / FOLDS_FILE, json.dumps(report, indent=1, ensure_ascii=False) + "\n")


def read_folds(folder: Path) -> dict[str, Any]:
    """What the file has; before all folds are done it has no results."""
    try:
        found = read_json((folder / FOLDS_FILE).read_bytes())
        if not isinstance(found, dict):
            raise ValueError("it is not a JSON object")
    except (OSError, ValueError) as error:
        raise UserError(
            f"{folder / FOLDS_FILE} cannot be read",
            why=str(error),
            remedy=f"make it again: phalanx train --resume {folder}",
        ) from error
    return found
