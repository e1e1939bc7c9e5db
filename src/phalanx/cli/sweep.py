"""`phalanx sweep`: the flags of `phalanx train`, and a few of its own. Heavy imports happen when it runs."""

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from phalanx.errors import UserError
from phalanx.migrate.refuse import MigratingCommand

if TYPE_CHECKING:
    from phalanx.api.sweep_train import StartRun

_NOT_OF_SWEEPS = ("out", "at", "folds", "resume", "settings")


def _sweep(
    settings: Annotated[
        list[str] | None,
        typer.Argument(metavar="[RECIPE|FILE.yaml] [KEY=A,B,C|LOW..HIGH]... [KEY=VALUE]...", help="each key's values"),
    ] = None,
    seeds: Annotated[int | None, typer.Option(help="runs of each combination, with so many seeds; default 1")] = None,
    search: Annotated[
        str | None, typer.Option(help="optuna: choose each combination by what those before it have found")
    ] = None,
    trials: Annotated[int | None, typer.Option(help="combinations that --search tries")] = None,
    folder: Annotated[Path | None, typer.Option(help="of all runs; default runs/sweep-NAME-TIME")] = None,
    resume: Annotated[
        str | None, typer.Option(help="go on with a sweep: its folder; without a value the latest, or --folder")
    ] = None,
) -> None:
    """Train every combination of some settings' values, with several seeds; one table and one figure at the end."""


def add_sweep(app: typer.Typer, train: Callable[..., None]) -> None:
    """Add the command. Its flags are those of `train`: they have one home."""

    def sweep(**given: Any) -> None:
        raise typer.Exit(run(given))

    hints = get_type_hints(train, include_extras=True)
    of_train = [
        one.replace(annotation=hints[name])
        for name, one in inspect.signature(train).parameters.items()
        if name not in _NOT_OF_SWEEPS
    ]
    own = list(inspect.signature(_sweep, eval_str=True).parameters.values())
    setattr(sweep, "__signature__", inspect.Signature([*own, *of_train]))  # noqa: B010 - a function has no such field
    sweep.__annotations__ = {one.name: one.annotation for one in (*own, *of_train)}
    sweep.__doc__ = _sweep.__doc__
    app.command("sweep", cls=MigratingCommand)(sweep)


def run(given: dict[str, Any], start_run: "StartRun | None" = None) -> int:
    """The exit code of a sweep with these parameters. Its runs are started here, unless `start_run` does it."""
    from phalanx.api.request import command_line
    from phalanx.api.session import refuse_rank
    from phalanx.api.start import start
    from phalanx.api.sweep_asked import AskedSweep
    from phalanx.api.sweep_runs import run_sweep
    from phalanx.config.flags import FLAGS
    from phalanx.config.grid import parse_grid
    from phalanx.config.ranges import split_ranges
    from phalanx.roles.lifeline import hold_lifeline

    refuse_rank()
    words = given["settings"] or []
    recipe, overrides = (words[0], words[1:]) if words and "=" not in words[0] else (None, words)
    stray = next((word for word in overrides if "=" not in word), None)
    if stray is not None:
        raise UserError(
            f"{stray!r} is not a setting",
            why="after the recipe come keys with their values",
            remedy="optim.lr=0.1,0.2,0.4 without spaces after the commas",
        )
    overrides, ranges = split_ranges(overrides)
    plain, grid = parse_grid(overrides)
    asked = AskedSweep(
        grid,
        recipe,
        tuple(plain),
        {flag: given.get(flag) for flag in FLAGS},
        given["seeds"],
        given["folder"],
        given["resume"],
        given["init_from"],
        given["accept_code"],
        command_line(),
        ranges,
        given["search"],
        given["trials"],
    )
    hold_lifeline()
    return run_sweep(asked, start_run or (lambda request, console: start(request, console=console)), None).exit_code
