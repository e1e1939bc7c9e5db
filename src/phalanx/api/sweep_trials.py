"""The trials of a search: each is chosen when those before it are done."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from phalanx.api.code import with_code
from phalanx.api.sweep_asked import AskedSweep
from phalanx.api.sweep_plan import canonical, checked_request, with_seeds
from phalanx.api.sweep_search import Search, check_search, ends, suggest
from phalanx.api.sweep_train import SweepJob, add_runs, train_runs
from phalanx.config.flags import imply_collective
from phalanx.config.grid import value_layers
from phalanx.config.ranges import Range, Space
from phalanx.config.resolve import resolve
from phalanx.errors import UserError
from phalanx.observe.sweep_results import read_trials
from phalanx.roles.request import Request
from phalanx.runs.code import write_code
from phalanx.runs.folder import RunFolder
from phalanx.runs.sweep_file import SweepPlan, SweepRun, write_sweep

BASE = "settings"  # the folder of what all trials share: config.yaml and the user's own code
_ATTEMPTS = 20  # to find a combination that was not tried yet


def plan_search(asked: AskedSweep) -> tuple[Search, Request]:
    """A search, and a request of its first combination. Every end of every range is validated."""
    space: Space = {**asked.ranges, **asked.grid}
    check_search(asked.search, asked.trials, space, ranges=bool(asked.ranges))
    assert asked.trials is not None
    seeds = 1 if asked.seeds is None else asked.seeds
    if seeds < 1 or "train.seed" in space:
        raise UserError(
            f"--seeds cannot be {seeds}" if seeds < 1 else "train.seed cannot be searched",
            why="each combination has as many runs as --seeds says",
            remedy="--seeds 3",
        )
    tried = [(values, checked_request(asked, values)) for values in ends(space)]
    request = tried[0][1]
    for key, one in space.items():
        if not isinstance(one, Range):  # as results name them
            known = [canonical(values, made.config)[key] for values, made in tried]
            space[key] = [value for number, value in enumerate(known) if value not in known[:number]]
    return Search(space, asked.trials, seeds, request.config.train.seed), request


def resumed_search(asked: AskedSweep, plan: SweepPlan, folder: Path) -> Search:
    """The search of a folder, with as many trials as are asked for now."""
    if plan.search is None or asked.names_runs:
        what = "is a search already" if plan.search is not None else "is a sweep of every combination, not a search"
        raise UserError(
            f"{folder} {what}",
            why=f"it began with: {plan.command}",
            remedy=f"phalanx sweep --resume {folder} goes on with it"
            + (", --trials 40 makes it longer" if plan.search is not None else "; or choose another --folder"),
        )
    search = Search.from_data(plan.search)
    check_search("optuna", asked.trials or search.trials, search.space, ranges=True)
    return replace(search, trials=asked.trials or search.trials)


def write_base(folder: Path, plan: SweepPlan, request: Request) -> None:
    """Write what all trials share."""
    base = RunFolder(folder / BASE)
    base.path.mkdir(parents=True, exist_ok=True)
    write_code(base.path, request.code)
    base.write_config(request.resolved)
    write_sweep(folder, plan, {"finished": False})


def run_trials(job: SweepJob) -> int:
    """Train every trial that is not done, with all of its seeds. The exit code of a run that was stopped, or 0."""
    assert job.plan.search is not None
    search = Search.from_data(job.plan.search)
    for number in range(1, search.trials + 1):
        runs = _runs_of(job.plan, number)
        if len(runs) < search.seeds:
            values = runs[0].values if runs else _next_values(job, search)
            if values is None:
                job.say(f"{number - 1} trials: optuna has nothing to suggest that was not tried")
                return 0
            request = _request(job, values)
            found = with_seeds(canonical(values, request.config), request, search.first_seed, search.seeds)
            add_runs(job.folder, job.plan, list(found))
            runs = _runs_of(job.plan, number)
        code = train_runs(job, runs, 1 + (number - 1) * search.seeds, search.trials * search.seeds)
        if code:
            return code
    return 0


def _runs_of(plan: SweepPlan, trial: int) -> list[SweepRun]:
    return [run for run in plan.runs if run.trial == trial]


def _next_values(job: SweepJob, search: Search) -> dict[str, Any] | None:
    """What the next trial tries. None if all that is suggested was tried: the same run again gives the same result."""
    trials = read_trials(job.folder, job.plan)
    for attempt in range(_ATTEMPTS):
        values = suggest(search, trials, attempt)
        if all(values != trial.values for trial in trials):
            return values
    return None


def _request(job: SweepJob, values: dict[str, Any]) -> Request:
    """The request of a trial: the settings that all share, with its values."""
    base = RunFolder(job.folder / BASE)
    layer = base.layer()
    resolved = resolve([layer, *imply_collective([layer], value_layers(values))])
    request = Request(resolved, job.asked.command, resume=base, resumed_from=layer.origin)
    return replace(with_code(request, job.asked.accept_code), resume=None, resumed_from="")
