"""Entries of a list of the user's own code: `file.py:Name`, or {name: file.py:Name, options: {...}}."""

from typing import Annotated, Any

from pydantic import AfterValidator

Entry = str | dict[str, Any]


def _complete(entry: Entry) -> Entry:
    if isinstance(entry, dict):
        name, options = entry.get("name"), entry.get("options", {})
        if entry.keys() - {"name", "options"} or not isinstance(name, str) or not isinstance(options, dict):
            raise ValueError(f"{entry} should be file.py:Name or {{name: file.py:Name, options: {{...}}}}")
    return entry


CodeEntry = Annotated[Entry, AfterValidator(_complete)]


def name_of(entry: Entry) -> str:
    """The reference."""
    return entry if isinstance(entry, str) else str(entry["name"])


def options_of(entry: Entry) -> dict[str, Any]:
    """The keyword arguments."""
    return {} if isinstance(entry, str) else dict(entry.get("options", {}))
