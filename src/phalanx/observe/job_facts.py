"""What is known of a job's roles, from job.json and the last step event: speed, times, waiting, how each ended."""

from typing import Any

from phalanx.observe.slowness import Slowness
from phalanx.runs.events import TIMES, Record


def listed(job: dict[str, Any] | None, name: str) -> list[dict[str, Any]]:
    """The objects of a list in job.json, as copies; none where it is damaged."""
    found = job.get(name) if job else None
    return [dict(one) for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def roles_of(job: dict[str, Any] | None, last: Record | None) -> list[dict[str, Any]]:
    """A row for each role. Trainers' times come from the newest of job.json and the last step event."""
    roles = listed(job, "roles")
    ranks = (last or {}).get("ranks") or ([last] if last else [])
    if not roles and last:  # one process, or started by another launcher: workers are known by their times alone
        roles = [{"name": f"trainer-{rank}", "host": "", "state": "", "starts": 1} for rank in range(len(ranks))]
    for role in roles:
        kind, _, number = str(role.get("name", "")).rpartition("-")
        own = ranks[int(number)] if kind == "trainer" and number.isdecimal() and int(number) < len(ranks) else None
        if own is not None and last is not None and last["step"] >= _number(role.get("step")):
            role["times"] = {name: own.get(f"{name}_s") for name in TIMES}
            role["step"] = last["step"]
            role["samples_per_s"] = own.get("samples_per_s") or role.get("samples_per_s")
    waits = _waiting([role.get("times") for role in roles])
    for role, wait in zip(roles, waits, strict=True):
        role["waiting"] = wait
        role["fate"] = fate_of(role)
    return roles


def _number(value: Any) -> float:
    return value if isinstance(value, int | float) else 0


def _waiting(times: list[Any]) -> list[float | None]:
    """Seconds of the exchange that each worker waited for slower ones: what it took beyond the shortest exchange."""
    known = [one.get("exchange") for one in times if isinstance(one, dict)]
    numbers = [value for value in known if isinstance(value, int | float)]
    if len(numbers) < 2:
        return [None] * len(times)
    least = min(numbers)
    found = [one.get("exchange") if isinstance(one, dict) else None for one in times]
    return [value - least if isinstance(value, int | float) else None for value in found]


def fate_of(role: dict[str, Any]) -> str:
    """How a role stands or ended, in words: a signal by its name."""
    state, code = str(role.get("state") or ""), role.get("code")
    if state not in ("ended", "lost") or not isinstance(code, int):
        return state
    if code < 0:
        names = {-9: "killed (SIGKILL)", -15: "ended by SIGTERM", -11: "crashed (SIGSEGV)", -6: "aborted (SIGABRT)"}
        return names.get(code, f"ended by signal {-code}")
    return "finished" if code == 0 else f"failed (exit code {code})"


def slowest_of(slowness: Slowness, job: dict[str, Any] | None) -> str | None:
    """The slowest worker over the whole run; without its times, by job.json alone."""
    if len(slowness.ranks) > 1:
        return slowness.sentence()
    rows = []
    for role in listed(job, "roles"):
        times = role.get("times")
        if isinstance(times, dict) and all(isinstance(times.get(name), int | float) for name in TIMES):
            rows.append({f"{name}_s": float(times[name]) for name in TIMES})
    found = Slowness()
    if len(rows) > 1:
        found.add(rows)
    return found.sentence()
