"""One row of the table of runs: what state it is in, how good, how fast, how long still."""

import contextlib
import math
from pathlib import Path
from typing import Any

import yaml

from phalanx.board.curves import last_numbers
from phalanx.board.latest import slow_worker
from phalanx.board.notes import read_notes
from phalanx.board.parsed import ParsedFiles
from phalanx.board.places import Place
from phalanx.config.text import read_yaml
from phalanx.observe.history import History
from phalanx.observe.run_state import state_of, steps_per_s
from phalanx.runs.evaluations import best_of, evaluations
from phalanx.runs.folder import CONFIG_HEADER
from phalanx.runs.inside import json_inside, read_inside

LARGEST_CONFIG = 4 << 20  # bytes: reading YAML takes a second for each few MB
_SHOWN_SECTIONS = ("name", "model", "exchange")
_SPARK = 32  # points of the small curve


def row_of(place: Place, history: History) -> dict[str, Any]:
    """The row of a run. Unknown values are None; `remarks` say what is damaged or missing."""
    with history.lock:
        history.refresh()
        remarks = list(history.remarks)
        config = config_of(place, remarks)
        job = _json(place, "job.json", remarks)
        start, last = history.start(), history.last_step
        measured = evaluations(history.evaluations())
        best = best_of(measured)
        total = start.get("total_steps")
        speed = steps_per_s(history)
        state, why = state_of(place.path, history, job, copied=bool(place.host))
        damaged = bool(history.remarks) or not history.present
        if not history.present:
            remarks.append("it has no events.jsonl")
        # A job that waits for its hosts has no events yet.
        broken = damaged and state != "running" and (bool(history.remarks) or state != "waiting")
        left = (total - last) / speed if state == "running" and total and speed else None
        notes = read_notes(place.path)
        images = history.last_steps[-1].get("samples_per_s") if history.last_steps else None
        scores = [100 * one.score for one in measured if one.score >= 0]
        return {
            "key": place.key,
            "name": place.name,
            "path": place.shown_path,
            "host": place.host,
            "state": "damaged" if broken else state,
            "why": why,
            "damaged": damaged,
            "remarks": remarks,
            "recipe": _text(config.get("name")),
            "model": _text(start.get("model") or _inner(config, "model", "name")),
            "data": _text(start.get("data")),
            "best": _score(best.score if best else None),
            "best_step": best.step if best else None,
            "last": _score(measured[-1].score if measured else None),
            "metric": best.metric if best else "top1",
            "spark": last_numbers(scores, _SPARK),
            "step": last,
            "total_steps": total,
            "steps_per_epoch": start.get("steps_per_epoch"),
            "steps_per_s": speed,
            "images_per_s": images,
            "left_s": left,
            "slow": slow_worker(history, job),
            "hosts": _hosts(job),
            "workers": _number(_inner(config, "exchange", "workers")),
            "method": _text(_inner(config, "exchange", "method")),
            "since": history.first_t or (job or {}).get("began"),
            "last_t": history.last_t,
            "seconds": history.seconds_at(history.last_t) if history.last_t else None,
            "tags": notes["tags"],
            "note": notes["note"],
        }


def _read_config(run: Path, name: str) -> Any:
    text = read_inside(run, name, LARGEST_CONFIG).decode()
    if text.startswith(CONFIG_HEADER):
        with contextlib.suppress(yaml.YAMLError):
            return read_yaml(_shown_sections(text))
    return read_yaml(text)


def _shown_sections(text: str) -> str:
    """Of a configuration as we write it, what the table shows: to read all of 200 such files takes seconds."""
    kept, wanted = [], False
    for line in text.splitlines():
        if line[:1].isalpha():
            wanted = line.partition(":")[0] in _SHOWN_SECTIONS
        if wanted:
            kept.append(line)
    return "\n".join(kept)


_CONFIGS, _OBJECTS = ParsedFiles(_read_config), ParsedFiles(json_inside)


def config_of(place: Place, remarks: list[str]) -> dict[str, Any]:
    """What the table shows of config.yaml, without validation: the run may be of another version, or damaged."""
    try:
        tree = _CONFIGS.get(place.path, "config.yaml")
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        text = (error.strerror if isinstance(error, OSError) else str(error).partition("\n")[0]) or "damaged"
        remarks.append(f"config.yaml cannot be read: {text}")
        return {}
    return tree if isinstance(tree, dict) else {}


def _json(place: Place, name: str, remarks: list[str]) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] | None = _OBJECTS.get(place.path, name)
        return found
    except ValueError as error:
        remarks.append(f"{name} cannot be read: {str(error)[:200]}")
        return None


def _hosts(job: dict[str, Any] | None) -> list[str]:
    roles = (job or {}).get("roles")
    found = [role.get("host") for role in roles if isinstance(role, dict)] if isinstance(roles, list) else []
    return sorted({str(host) for host in found if host})


def _inner(tree: dict[str, Any], section: str, name: str) -> Any:
    inner = tree.get(section)
    return inner.get(name) if isinstance(inner, dict) else None


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def _number(value: Any) -> float | None:
    return value if isinstance(value, int | float) and math.isfinite(value) else None


def _score(value: float | None) -> float | None:
    return value if value is not None and value >= 0 else None
