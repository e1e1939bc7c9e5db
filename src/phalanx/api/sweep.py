"""`phalanx.sweep`: the command `phalanx sweep` as a function, and the folder of its runs."""

import os
import signal
from collections.abc import Mapping, Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from rich.console import Console

from phalanx.api.arguments import call_text, given_flags, refuse_unknown, settings_layers, to_setting
from phalanx.api.flags import PathText, TrainFlags
from phalanx.api.job import ChildJob, run_job
from phalanx.api.recipe import Recipe
from phalanx.api.request import LATEST
from phalanx.api.run import Run
from phalanx.api.session import make_console, refuse_rank, train_here
from phalanx.api.start import needs_processes
from phalanx.api.sweep_asked import AskedSweep
from phalanx.api.sweep_runs import run_sweep
from phalanx.config.flags import flag_layers
from phalanx.config.ranges import Range, parse_range
from phalanx.errors import UserError
from phalanx.observe.sweep_results import Trial, best_trial, read_trials, table
from phalanx.roles.request import Request
from phalanx.roles.result import Result
from phalanx.runs.events import EVENTS_FILE
from phalanx.runs.sweep_file import read_plan

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Sweep:
    """The folder of a sweep. What its runs have found is read from their files.

    >>> found = phalanx.sweep("digits", {"optim.lr": [0.05, 0.1]},
    ...                       settings={"model.name": "wrn10_1", "train.length": "3st"}, folder="runs/rates")
    >>> [trial.values for trial in phalanx.Sweep("runs/rates").trials]
    [{'optim.lr': 0.05}, {'optim.lr': 0.1}]
    """

    def __init__(self, path: PathText) -> None:
        self.path = Path(path)
        self._plan = read_plan(self.path)

    @property
    def trials(self) -> list[Trial]:
        """A row for each combination: number, values, mean and std over its seeds, and its runs."""
        return read_trials(self.path, self._plan)

    @property
    def best(self) -> Trial:
        """The combination with the highest mean of the best validation accuracies."""
        found = best_trial(self.trials)
        if found is None:
            raise UserError(
                f"no run of {self.path} is finished", why="there is nothing to compare", remedy="continue it: resume()"
            )
        return found

    @property
    def runs(self) -> list[Run]:
        """All runs that have begun."""
        paths = [self.path / run.name for run in self._plan.runs]
        return [Run(path) for path in paths if (path / EVENTS_FILE).is_file()]

    @property
    def finished(self) -> bool:
        """Whether all runs are."""
        return all(run.state == "finished" for trial in self.trials for run in trial.runs)

    def figure(self) -> "Figure":
        """Accuracy against the values."""
        from phalanx.observe.sweep_figure import figure_of

        return figure_of(self._plan, self.trials)

    def __repr__(self) -> str:
        rows = ["  " + "  ".join(cell for cell in row if cell) for row in table(self._plan.keys, self.trials)]
        return "\n".join([f"Sweep {self.path}", *rows])

    @refuse_unknown
    def resume(
        self, *, accept_code: str | None = None, progress: bool | None = None, **flags: Unpack[TrainFlags]
    ) -> "Sweep":
        """Train the runs that are not done. Flags may say where: workers, threads, devices."""
        return sweep(resume=self.path, accept_code=accept_code, progress=progress, **flags)


@refuse_unknown
def sweep(
    recipe: "str | PathLike[str] | Recipe | None" = None,
    values: Mapping[str, Sequence[Any] | str] | None = None,
    *,
    seeds: int | None = None,
    search: str | None = None,
    trials: int | None = None,
    settings: Mapping[str, Any] | None = None,
    folder: PathText | None = None,
    resume: "str | PathLike[str] | bool | None" = None,
    init_from: "str | PathLike[str] | Run | None" = None,
    accept_code: str | None = None,
    progress: bool | None = None,
    **flags: Unpack[TrainFlags],
) -> Sweep:
    """Train every combination of some settings' values, as `phalanx sweep` does.

    >>> found = phalanx.sweep("digits", {"optim.lr": [0.05, 0.1]}, seeds=1,
    ...                       settings={"model.name": "wrn10_1", "train.length": "3st"})
    >>> found.finished, sorted(found.best.values)
    (True, ['optim.lr'])

    Args:
        recipe: as for `phalanx.train`.
        values: the values of each setting: {"optim.lr": [0.1, 0.2], "optim.momentum": [0.8, 0.9]}.
            For a search also a range: {"optim.lr": "0.01..1:log"}.
        seeds: runs of each combination, with seeds from train.seed on. Default: 1.
        search: "optuna" chooses each combination by the results of those before it. Default: all combinations.
        trials: combinations that a search tries.
        settings: settings that all runs share.
        folder: of all runs. Default: runs/sweep-NAME-TIME.
        resume: the folder of a sweep to go on with; True is the latest one in runs/.
        init_from: start all runs from the weights of a run, a checkpoint or a file.
        accept_code: with `resume`, if your own code has changed: "run" (the runs' copies) or "new".
        progress: show progress. Default: in a terminal and in a notebook, but nowhere else.
        flags: those of `phalanx.train`, for all runs.
    """
    refuse_rank()
    named = recipe.name if isinstance(recipe, Recipe) else None if recipe is None else fspath(recipe)
    given = given_flags(flags)
    said: dict[str, Any] = {"values": values, "seeds": seeds, "search": search, "trials": trials, "settings": settings}
    said["folder"] = folder
    ranges = {key: _range(key, each) for key, each in (values or {}).items() if isinstance(each, str)}
    asked = AskedSweep(
        {
            key: [to_setting(value, key) for value in each]
            for key, each in (values or {}).items()
            if not isinstance(each, str)
        },
        named,
        (*flag_layers(given, spelled="{}="), *settings_layers(settings)),
        None,
        seeds,
        None if folder is None else Path(folder),
        LATEST if resume is True else None if resume is None or resume is False else fspath(resume),
        None if init_from is None else Path(init_from),
        accept_code,
        call_text("sweep", named, {**said, **given}),
        ranges,
        search,
        trials,
    )
    result = run_sweep(asked, _start, make_console(progress))
    if result.exit_code == 128 + signal.SIGTERM:
        os.kill(os.getpid(), signal.SIGTERM)
    assert result.folder is not None
    return Sweep(result.folder)


def _range(key: str, text: str) -> Range:
    found = parse_range(key, text)
    if found is None:
        raise UserError(
            f"the values of {key} cannot be {text!r}",
            why="they are a list, or for a search a range",
            remedy=f'{{"{key}": [0.1, 0.2]}} or {{"{key}": "0.01..1:log"}}',
        )
    return found


def _start(request: Request, console: Console | None) -> Result:
    """One run: in this process, or as a job beside it."""
    assert console is not None
    if not needs_processes(request.config):
        return train_here(request, console)
    folder = request.resume.path if request.resume is not None else request.out
    assert folder is not None
    return Result(run_job(ChildJob(request, folder, None), console), folder)
