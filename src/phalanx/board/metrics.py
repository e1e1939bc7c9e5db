"""Runs in Prometheus' text format, for `/metrics`."""

from collections.abc import Sequence
from typing import Any

# name → (kind, help, key of a row)
_GAUGES = {
    "phalanx_run_step": ("steps that are done", "step"),
    "phalanx_run_steps_total": ("steps of the whole run", "total_steps"),
    "phalanx_run_best_score": ("best accuracy or mAP so far, 0 to 1", "best"),
    "phalanx_run_last_score": ("latest accuracy or mAP, 0 to 1", "last"),
    "phalanx_run_steps_per_second": ("speed of the latest steps", "steps_per_s"),
    "phalanx_run_images_per_second": ("images a second of the latest steps", "images_per_s"),
    "phalanx_run_seconds_left": ("estimated time to the end", "left_s"),
    "phalanx_run_last_event_timestamp_seconds": ("when its last event was written", "last_t"),
}
STATES = ("running", "waiting", "finished", "stopped", "failed", "killed", "silent", "damaged")


def metrics_text(rows: Sequence[dict[str, Any]]) -> str:
    """One sample of each gauge for each run that has it."""
    lines = []
    for name, (meaning, key) in _GAUGES.items():
        lines += [f"# HELP {name} {meaning}", f"# TYPE {name} gauge"]
        lines += [f"{name}{_labels(row)} {float(row[key])!r}" for row in rows if isinstance(row[key], int | float)]
    lines += ["# HELP phalanx_run_state 1 for the state that the run is in", "# TYPE phalanx_run_state gauge"]
    for row in rows:
        lines += [f"phalanx_run_state{_labels(row, state=state)} {int(row['state'] == state)}" for state in STATES]
    return "\n".join(lines) + "\n"


def _labels(row: dict[str, Any], **more: str) -> str:
    labels = {"run": row["name"], "key": row["key"], "recipe": row["recipe"] or "", **more}
    return "{" + ",".join(f'{name}="{_escaped(str(value))}"' for name, value in labels.items()) + "}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
