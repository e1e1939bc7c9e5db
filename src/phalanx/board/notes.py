"""notes.json of a run's folder: tags and a note of the user. The only file that the board writes."""

import json
from pathlib import Path
from typing import Any

from phalanx.errors import UserError
from phalanx.runs.folder import write_run_file
from phalanx.runs.inside import json_inside

NOTES_FILE = "notes.json"
_MOST_TAGS, _LONGEST_TAG, _LONGEST_NOTE = 20, 60, 20_000


def read_notes(run: Path) -> dict[str, Any]:
    """{"tags": […], "note": "…"}; empty where there are none, or where the file is damaged."""
    try:
        found = json_inside(run, NOTES_FILE) or {}
    except ValueError:
        found = {}
    tags, note = found.get("tags"), found.get("note")
    return {
        "tags": [str(tag) for tag in tags] if isinstance(tags, list) else [],
        "note": note if isinstance(note, str) else "",
    }


def write_notes(run: Path, given: Any) -> dict[str, Any]:
    """Replace tags and note. A UserError where they are not text, or too long."""
    tags, note = (given.get("tags"), given.get("note")) if isinstance(given, dict) else (None, None)
    if not isinstance(note, str) or not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags):
        raise UserError("these are no notes", why='{"tags": [TEXT, …], "note": TEXT} is expected')
    tags = list(dict.fromkeys(tag.strip() for tag in tags if tag.strip()))
    if len(tags) > _MOST_TAGS or any(len(tag) > _LONGEST_TAG for tag in tags) or len(note) > _LONGEST_NOTE:
        raise UserError("these notes are too long", why=f"at most {_MOST_TAGS} tags, {_LONGEST_NOTE:,} characters")
    clean = {"tags": tags, "note": note}
    write_run_file(run / NOTES_FILE, json.dumps(clean, indent=1) + "\n")  # ASCII: halves of surrogates have no UTF-8
    return clean
