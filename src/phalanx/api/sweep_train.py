"""The runs of a sweep: their folders, and their training one after the other."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from phalanx.api.code import with_code
from phalanx.api.parts import ANYWHERE, is_done
from phalanx.api.sweep_asked import AskedSweep
from phalanx.config.grid import shown
from phalanx.config.resolve import flatten, resolve
from phalanx.config.schema import RunConfig
from phalanx.errors import EXIT_USER, UserError
from phalanx.observe.results import read_results
from phalanx.roles.request import Request, resume_request
from phalanx.roles.result import Result
from phalanx.runs import checkpoint
from phalanx.runs.code import write_code
from phalanx.runs.events import EVENTS_FILE
from phalanx.runs.folder import RunFolder
from phalanx.runs.lock import hold_run
from phalanx.runs.sweep_file import SweepPlan, SweepRun, write_sweep

StartRun = Callable[[Request, Console | None], Result]
PlannedRun = tuple[dict[str, Any], int, Request]  # values, seed, request
_STOPPED = (130, 143)  # exit codes of a run that a signal has stopped


def add_runs(folder: Path, plan: SweepPlan, planned: list[PlannedRun]) -> None:
    """Write the settings and the code of each new run into its folder. Known ones have to be the same."""
    for values, seed, request in planned:
        known = plan.find(values, seed)
        if known is not None:
            _refuse_changed(folder / known.name, request.config)
            continue
        run = RunFolder(folder / plan.add(values, seed).name)
        run.path.mkdir(parents=True, exist_ok=True)
        config = request.config
        if config.train.log_dir is not None:
            train = config.train.model_copy(update={"log_dir": str(Path(config.train.log_dir, run.path.name))})
            config = config.model_copy(update={"train": train})
        write_code(run.path, request.code)
        run.write_config(request.resolved.with_config(config))
    write_sweep(folder, plan, {"finished": False})


def _refuse_changed(run: Path, config: RunConfig) -> None:
    """A resumed sweep may have more values and seeds; what its runs share has to stay."""
    layer = RunFolder(run).layer()
    before = flatten(resolve([layer]).config.model_dump(mode="json"))
    now = flatten(config.model_dump(mode="json"))
    # What is settled when a run starts, such as machine.precision, is among the settings that may differ.
    may = (*ANYWHERE, "code.", "train.batch_size", "train.global_batch_size", "train.micro_batches")
    changed = [key for key in now if now[key] != before.get(key) and not key.startswith(may)]
    if changed:
        raise UserError(
            f"{', '.join(f'{key}={shown(now[key])}' for key in changed)} cannot change a sweep that has begun",
            why=f"{run.name} has {', '.join(f'{key}={shown(before.get(key))}' for key in changed)}, and the runs of a "
            "sweep are compared with one another",
            remedy="leave it out, or start a new sweep in another --folder",
        )


@dataclass(frozen=True)
class SweepJob:
    """A sweep at work: its folder and plan, what was asked, and how its runs are started and shown."""

    folder: Path
    plan: SweepPlan
    asked: AskedSweep
    start: StartRun
    console: Console | None

    @property
    def shown_on(self) -> Console:
        return self.console or Console()

    def say(self, text: str) -> None:
        self.shown_on.print(Text(text, style="bold"), soft_wrap=True)


def train_runs(job: SweepJob, runs: Sequence[SweepRun], first: int, total: int) -> int:
    """Train those that are not done, one after the other. They are number `first` and following of `total`.

    Returns the exit code of the run that was stopped, and otherwise 0: one that fails does not end a sweep.
    """
    folder = job.folder
    for number, run in enumerate(runs, first):
        values = [f"{key}={shown(value)}" for key, value in run.values.items()]
        name = f"run {number} of {total}: {', '.join([*values, f'seed {run.seed}'])}"
        if is_done(folder / run.name):
            run.error = ""
            job.say(f"{name} is done")
            continue
        job.say(name)
        run.error = ""
        try:
            result = job.start(_run_request(folder, run, job.plan, job.asked), job.console)
        except UserError as error:
            run.error = f"{error.what}: {error.why}" if error.why else error.what
            job.say(f"{name} failed: {error.what}")
        else:
            if result.exit_code in _STOPPED or (not result.exit_code and not is_done(folder / run.name)):
                job.say(f"stopped at {name}; to go on: phalanx sweep --resume {folder}")
                return result.exit_code or EXIT_USER
            if result.exit_code:
                run.error = _why_ended(folder / run.name, result.exit_code)
                job.say(f"{name} failed: {run.error}")
        if run.error:
            write_sweep(folder, job.plan, {"finished": False})
    return 0


def _run_request(folder: Path, run: SweepRun, plan: SweepPlan, asked: AskedSweep) -> Request:
    """The request of a run, from the settings in its folder; one that has a checkpoint goes on from it."""
    place = RunFolder(folder / run.name)
    given = asked.elsewhere if asked.resume is not None else []
    request = with_code(resume_request(place.layer(), given, asked.command, place, None), asked.accept_code)
    if checkpoint.latest_path(place.checkpoints) is not None:
        return request
    with hold_run(place.path):  # nothing was saved, so it starts anew, unless another process is at it
        (place.path / EVENTS_FILE).unlink(missing_ok=True)
    start = Path(plan.init_from) if plan.init_from else None
    return replace(request, resume=None, resumed_from="", out=place.path, init_from=start)


def _why_ended(run: Path, code: int) -> str:
    if (run / EVENTS_FILE).is_file():
        found = read_results([run])[0]
        if found.state == "stopped" and found.remarks:
            return next(remark for remark in found.remarks if remark.startswith("stopped"))
    return f"it ended with exit code {code}; see {run / 'logs'}"
