"""The view of a job from its run's folder, for whoever looks from outside."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from phalanx.observe.display import validation_view
from phalanx.observe.history import History
from phalanx.observe.job_facts import roles_of
from phalanx.observe.job_view import JobView, ScoreView, mean_times, others_in, total_speed, workers_in
from phalanx.observe.lines import training_accuracies
from phalanx.observe.run_state import state_of, steps_per_s
from phalanx.runs.evaluations import evaluations
from phalanx.runs.events import Record
from phalanx.runs.inside import json_inside

UNDER_WAY = ("running", "waiting", "silent")  # states of a run that may go on


def view_of_run(run: Path, history: History, *, name: str = "", copied: bool = False, problem: str = "") -> JobView:
    """What the files of a run say now. `copied`: they are copies of another host's, which may have a `problem`."""
    try:
        job = json_inside(run, "job.json")
    except ValueError:
        job = None  # damaged: the events say what is known
    with history.lock:
        history.refresh(steps=True)
        state, why = state_of(run, history, job, copied=copied)
        last = history.last_steps[-1] if history.last_steps else None
        start = history.start()
        roles = roles_of(job if job and job.get("state") != "ended" else None, last)
        workers = workers_in(roles)
        step = max([history.last_step, *(int(role["step"]) for role in roles if isinstance(role.get("step"), int))])
        speed = steps_per_s(history) if state == "running" else None
        total = int(start.get("total_steps") or 0)
        return JobView(
            step=step,
            total_steps=total,
            epoch=last["epoch"] if last else 0,
            batch=last["batch"] if last else 0,
            batches=last["batches"] if last else int(start.get("steps_per_epoch") or 0),
            epoch_left_s=(last["batches"] - last["batch"]) / speed if last and speed else None,
            left_s=max(0, total - step) * (1 / speed + _pause_s(history, step)) if speed else None,
            taken_s=_taken_s(history, running=state == "running"),
            training=_training(history, last),
            validation=validation_view(evaluations(history.evaluations())),
            samples_per_s=(last["samples_per_s"] if last else None) or total_speed(workers),
            times=mean_times(workers),
            workers=workers,
            slowest=history.slowness.slowest(),
            title="  ".join(part for part in (name or run.resolve().name, str(start.get("model") or "")) if part),
            state=f"{state}: {why}" if why else state,
            others=others_in(roles),
            problems=[*history.remarks, *([problem] if problem else [])],
        )


def under_way(view: JobView) -> bool:
    """Whether the job of a view may still change."""
    return view.state.partition(":")[0] in UNDER_WAY


def _training(history: History, last: Record | None) -> ScoreView | None:
    if last is None:
        return None
    return ScoreView(training_accuracies(last), history.columns["top1"], _loss(last))


def _loss(last: Mapping[str, Any]) -> str:
    return "" if last["loss"] is None else f"loss {last['loss']:.4f}"


def _pause_s(history: History, step: int) -> float:
    """Seconds of validation and saving, for each step so far."""
    spent = sum(float(one.get("seconds") or 0.0) for one in history.of_kind("eval", "checkpoint"))
    return spent / step if step else 0.0


def _taken_s(history: History, *, running: bool) -> float | None:
    if history.last_t is None:
        return None
    return history.seconds_at(max(time.time(), history.last_t) if running else history.last_t)
