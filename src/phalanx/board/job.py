"""The job of a run: each role with its host, state, speed and where its time goes; faults; data servers; the plan."""

import time
from pathlib import Path
from typing import Any

from phalanx.board.latest import latest_step, slow_worker
from phalanx.board.places import Place
from phalanx.board.planned import plan_beside_fact
from phalanx.board.rows import config_of
from phalanx.observe.history import History
from phalanx.observe.job_facts import listed, roles_of, slowest_of
from phalanx.observe.run_state import state_of
from phalanx.runs.events import TIMES, Record
from phalanx.runs.folder import PLAN_FILE
from phalanx.runs.inside import json_inside
from phalanx.runs.summary import Summary

_SHOWN = ("start", "resume", "stop", "end", "checkpoint", "note", "bad_image")
_MOST_MARKS = 400


def job_of(place: Place, history: History) -> dict[str, Any]:
    """What the job's page shows."""
    remarks: list[str] = []
    job = _read(place.path, "job.json", remarks)
    plan = _read(place.path, PLAN_FILE, remarks)
    with history.lock:
        history.refresh(steps=True)
        last = latest_step(history)
        state, why = state_of(place.path, history, job, copied=bool(place.host))
        service, system = history.latest.get("data_service"), history.latest.get("system")
        return {
            "state": state,
            "why": why,
            "job": _about(job),
            "roles": roles_of(job, last),
            "slow": slow_worker(history, job),
            "slowest": slowest_of(history.slowness, job),
            "last": _last(last),
            "data_servers": service.get("servers", []) if service else [],
            "wait_share": service.get("wait_share") if service else None,
            "system": _system(system, listed(job, "hosts")),
            "timeline": _timeline(history, job),
            "plan": plan_beside_fact(plan, config_of(place, remarks), history) if plan else None,
            "remarks": remarks,
            "now": time.time(),
        }


def _read(run: Path, name: str, remarks: list[str]) -> dict[str, Any] | None:
    try:
        return json_inside(run, name)
    except ValueError as error:
        remarks.append(f"{name} cannot be read: {str(error)[:200]}")
        return None


def _about(job: dict[str, Any] | None) -> dict[str, Any] | None:
    names = ("command", "launcher", "host", "pid", "state", "exit_code", "cause", "began", "ended", "run_on", "logs")
    return {name: job.get(name) for name in names} if job else None


def _last(last: Record | None) -> dict[str, Any] | None:
    names = ("step", "samples_per_s", "bytes_sent", "bytes_received", "compression_ratio", "details", "t")
    return {name: last.get(name) for name in (*names, *(f"{name}_s" for name in TIMES))} if last else None


def _system(latest: Record | None, hosts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The newest figures of each host: from its agent, and of the first worker's from its events."""
    found = {str(latest.get("host", "")): latest} if latest else {}
    alone = len(hosts) == 1 and len(found) == 1  # the launcher calls this host localhost
    return [*found.values(), *(one for one in hosts if str(one.get("host", "")) not in found and not alone)]


def _timeline(history: History, job: dict[str, Any] | None) -> list[dict[str, Any]]:
    marks = [_mark(one) for one in history.of_kind(*_SHOWN)]
    for fault in listed(job, "faults"):
        marks.append({"t": fault.get("t"), "kind": "fault", "text": str(fault.get("text", "")), "step": None})
    if job and job.get("state") == "ended":
        how = str(job.get("cause") or "") or f"exit code {job.get('exit_code')}"
        kind = "job failed" if job.get("exit_code") else "job ended"
        marks.append({"t": job.get("ended"), "kind": kind, "text": how, "step": None})
    known = [mark for mark in marks if isinstance(mark["t"], int | float)]
    return sorted(known, key=lambda mark: float(mark["t"]))[-_MOST_MARKS:]


def _mark(one: Record) -> dict[str, Any]:
    kind = one["kind"]
    text = {
        "start": lambda: f"training begins: {one['model']} on {one['data']}",
        "resume": lambda: f"continues from step {one['saved_step']:,}",
        "stop": lambda: str(one["reason"]),
        "end": lambda: f"finished after {one['wall_s'] or 0:.0f} s",
        "checkpoint": lambda: f"checkpoint in {one['seconds'] or 0:.2f} s, {one['bytes'] / 1e6:.1f} MB",
        "note": lambda: str(one["text"]),
        "bad_image": lambda: f"{one['name']}: {one['reason']}",
    }[kind]()
    return {"t": one["t"], "kind": kind, "step": one.get("step"), "text": text}


def summary_of(place: Place) -> dict[str, Any] | None:
    """summary.json, of the fields that it is known to have."""
    try:
        found = json_inside(place.path, "summary.json")
    except ValueError:
        return None
    return {name: found[name] for name in Summary.__dataclass_fields__ if name in found} if found else None
