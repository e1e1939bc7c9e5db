"""Sweeps: runs of several settings' values and seeds, in one folder and one table."""

from pathlib import Path

from rich.console import Console

from phalanx.api.request import LATEST
from phalanx.api.sweep_asked import AskedSweep
from phalanx.api.sweep_plan import plan_grid
from phalanx.api.sweep_report import show_sweep
from phalanx.api.sweep_train import StartRun, SweepJob, add_runs, train_runs
from phalanx.api.sweep_trials import plan_search, resumed_search, run_trials, write_base
from phalanx.config.schema import RunConfig
from phalanx.errors import EXIT_USER, UserError
from phalanx.roles.result import Result
from phalanx.runs.folder import RUNS, create_run
from phalanx.runs.sweep_file import SWEEP_FILE, SweepPlan, is_sweep, read_plan


def run_sweep(asked: AskedSweep, start: StartRun, console: Console | None) -> Result:
    """Train every run that is not done yet, then print the table. A run that fails does not end the sweep."""
    plan, folder = None, None if asked.resume is None else _begun_folder(asked)
    if folder is not None:
        plan = read_plan(folder)
    if asked.search is not None or asked.ranges or asked.trials is not None or (plan and plan.search):
        job = _search_job(asked, folder, plan, start, console)
        code = run_trials(job)
    else:
        job = _grid_job(asked, folder, plan, start, console)
        runs = sorted(job.plan.runs, key=lambda run: (run.seed, run.trial))  # all combinations of one seed first
        code = train_runs(job, runs, 1, len(runs))
    show_sweep(job.shown_on, job.folder, job.plan)
    return Result(code or (EXIT_USER if any(run.error for run in job.plan.runs) else 0), job.folder)


def _grid_job(
    asked: AskedSweep, folder: Path | None, plan: SweepPlan | None, start: StartRun, console: Console | None
) -> SweepJob:
    """Every combination, planned before the first one starts."""
    planned = plan_grid(asked) if plan is None or asked.names_runs else []
    if folder is None or plan is None:
        folder = _new_folder(asked, planned[0][2].config)
        plan = SweepPlan(asked.command, list(asked.grid), [], str(asked.init_from) if asked.init_from else None)
    else:
        _refuse_other_keys(asked, plan, folder)
    add_runs(folder, plan, planned)
    return SweepJob(folder, plan, asked, start, console)


def _search_job(
    asked: AskedSweep, folder: Path | None, plan: SweepPlan | None, start: StartRun, console: Console | None
) -> SweepJob:
    """A search with the settings that its trials share, or one that goes on, perhaps with more trials."""
    if folder is None or plan is None:
        search, request = plan_search(asked)
        folder = _new_folder(asked, request.config)
        init_from = str(asked.init_from) if asked.init_from else None
        plan = SweepPlan(asked.command, list(search.space), [], init_from, search.to_data())
        write_base(folder, plan, request)
    else:
        plan.search = resumed_search(asked, plan, folder).to_data()
    return SweepJob(folder, plan, asked, start, console)


def _new_folder(asked: AskedSweep, config: RunConfig) -> Path:
    if asked.folder is not None and is_sweep(asked.folder):
        raise UserError(
            f"{asked.folder} holds a sweep already",
            why="a folder holds one sweep",
            remedy=f"go on with it: phalanx sweep --resume {asked.folder}; or choose another --folder",
        )
    return create_run(asked.folder, f"sweep-{config.name}").path


def _begun_folder(asked: AskedSweep) -> Path:
    """The sweep to go on with: the one that --resume or --folder names, or the latest one in runs/."""
    if asked.resume not in (None, LATEST):
        return Path(str(asked.resume))
    if asked.folder is not None:
        return asked.folder
    found = sorted(RUNS.glob(f"*/{SWEEP_FILE}"), key=lambda path: path.stat().st_mtime)
    if not found:
        raise UserError(
            "there is no sweep to resume here",
            why=f"{RUNS}/ has none in {Path.cwd()}",
            remedy="name its folder: phalanx sweep --resume FOLDER",
        )
    return found[-1].parent


def _refuse_other_keys(asked: AskedSweep, plan: SweepPlan, folder: Path) -> None:
    if asked.names_runs and sorted(asked.grid) != sorted(plan.keys):
        raise UserError(
            f"{folder} is a sweep of {', '.join(plan.keys) or 'seeds'}, not of {', '.join(asked.grid) or 'seeds'}",
            why="one table has the same keys in all of its rows",
            remedy=f"phalanx sweep --resume {folder} alone goes on with it; it began with: {plan.command}",
        )
