"""`phalanx status`: every role of a job, from its supervisor, or from the job.json that it left."""

import time
from pathlib import Path

from rich.console import Console
from rich.text import Text

from phalanx.launch.agent import RECORD
from phalanx.launch.control import send_request
from phalanx.launch.launchers.kubernetes_job import KubernetesJob
from phalanx.launch.launchers.submitted import submitted_job
from phalanx.launch.record import JobRecord, RoleRecord, find_record, record_from_data
from phalanx.observe.slowness import Slowness
from phalanx.observe.tables import print_rows, print_table
from phalanx.runs.events import TIMES

_NUMBERS = ("rank", "step", "samples/s", *(f"{name} ms" for name in TIMES))  # a trainer's own, a step
TITLES = ("role", "host", "state", *_NUMBERS, "last seen")


def show_status(console: Console, run: Path | None) -> None:
    """Print the state of a job and its roles."""
    batch = submitted_job(run)
    if batch is not None and (job := batch.in_cluster) is not None:
        _show_cluster(console, job)
        return
    if batch is not None:
        state = batch.state()
        print_rows(console, {batch.scheduler: f"job {batch.job} is {state.kind}: {state.detail}"})
        if run is not None and not (run / RECORD).exists():
            return
    record = find_record(run, running=False)
    if record.supervised and record.socket:
        reply = send_request(Path(record.socket), {"request": "status"})
        record = record_from_data(reply) if reply is not None else record
    print_rows(console, _rows(record))
    print_table(console, TITLES, [_row(role) for role in record.roles], numbers=_NUMBERS)
    if record.state != "ended" and not record.supervised and batch is None:
        console.print(Text("its launcher is gone, and its roles have ended", style="bold"))


def _show_cluster(console: Console, job: KubernetesJob) -> None:
    """A job in a cluster: all that is known is there."""
    state = job.look()
    print_rows(console, {"job": str(job), "state": state.text, "restarts": str(state.restarts)})
    rows = [(pod.role, pod.name, pod.node, pod.state, pod.how if pod.failed else "") for pod in state.pods]
    print_table(console, ("role", "pod", "node", "state", "cause"), rows)


def _rows(record: JobRecord) -> dict[str, str]:
    rows = {
        "run": record.run,
        "command": record.command,
        "launcher": f"{record.launcher}, pid {record.pid} on {record.host}",
    }
    if record.run_on:
        rows["checkpoints"] = record.run_on
    taken = (record.ended or time.time()) - record.began
    rows["state"] = (
        f"{record.state} after {taken:.0f} s" if record.state == "ended" else f"{record.state} for {taken:.0f} s"
    )
    if record.exit_code is not None:
        rows["state"] += f", exit code {record.exit_code}"
    if record.cause:
        rows["cause"] = record.cause
    if record.logs:
        rows["logs"] = record.logs
    return rows | _speed(record)


def _speed(record: JobRecord) -> dict[str, str]:
    """The speed of all workers together, and the slowest one."""
    trainers = [role for role in record.roles if role.name.startswith("trainer-")]
    speeds = [role.samples_per_s for role in trainers if role.samples_per_s is not None]
    times = [{f"{name}_s": value for name, value in role.times.items()} for role in trainers if role.times]
    rows = {}
    if speeds:
        rows["speed"] = f"{sum(speeds):.1f} samples/s over {len(speeds)} worker{'s' * (len(speeds) > 1)}"
    if len(times) == len(trainers):
        slowness = Slowness()
        slowness.add(times)
        slowest = slowness.sentence()
        rows |= {"slowest": slowest} if slowest else {}
    return rows


def _row(role: RoleRecord) -> tuple[str, ...]:
    state = role.state if role.code is None else f"{role.state} ({role.code})"
    heard = "" if role.heard is None else f"{max(0.0, time.time() - role.heard):.0f} s ago"
    step = "" if role.step is None else str(role.step)
    speed = "" if role.samples_per_s is None else f"{role.samples_per_s:.1f}"
    times = [f"{1000 * role.times[name]:.1f}" if role.times else "" for name in TIMES]
    return role.name, role.host, state, role.name.rpartition("-")[2], step, speed, *times, heard
