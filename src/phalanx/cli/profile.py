"""`phalanx profile`: the flags of `phalanx train`, and a few of its own. Heavy imports happen when it runs."""

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer
from rich.console import Console

from phalanx.errors import UserError
from phalanx.migrate.refuse import MigratingCommand

if TYPE_CHECKING:
    from phalanx.roles.request import Request

_NOT_OF_PROFILES = ("at", "folds", "resume", "settings", "evaluator", "log", "notify", "accept_code")


def _profile(
    settings: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[RECIPE|FILE.yaml|RUN] [KEY=VALUE]...", help="as of train; of a RUN, its profile is shown again"
        ),
    ] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="steps that are profiled; default 10")] = None,
    warmup: Annotated[int | None, typer.Option(min=0, help="steps before them, which do not count; default 8")] = None,
    depth: Annotated[int, typer.Option(min=1, help="how far the table opens layers")] = 1,
    worker: Annotated[int, typer.Option(min=0, help="whose layers the table shows")] = 0,
) -> None:
    """Run a few steps of a training, and say where their time goes: a table, a trace, a flame graph for the board."""


def add_profile(app: typer.Typer, train: Callable[..., None]) -> None:
    """Add the command. Its flags are those of `train`: they have one home."""

    def profile(**given: Any) -> None:
        raise typer.Exit(run(given))

    hints = get_type_hints(train, include_extras=True)
    of_train = [
        one.replace(annotation=hints[name])
        for name, one in inspect.signature(train).parameters.items()
        if name not in _NOT_OF_PROFILES
    ]
    own = list(inspect.signature(_profile, eval_str=True).parameters.values())
    setattr(profile, "__signature__", inspect.Signature([*own, *of_train]))  # noqa: B010 - a function has no such field
    profile.__annotations__ = {one.name: one.annotation for one in (*own, *of_train)}
    profile.__doc__ = _profile.__doc__
    app.command("profile", cls=MigratingCommand)(profile)


def run(given: dict[str, Any]) -> int:
    """The exit code of a profile with these parameters."""
    from phalanx.api.start import start
    from phalanx.config.recipes import recipe_names
    from phalanx.launch.env.complete_role import complete
    from phalanx.launch.env.roles import role_from_env
    from phalanx.roles.lifeline import hold_lifeline

    words = given["settings"] or []
    if len(words) == 1 and Path(words[0]).is_dir() and words[0] not in recipe_names():
        return show(Path(words[0]), given)
    role = role_from_env()
    request = request_of(given)
    hold_lifeline()
    role = None if role is None else complete(role, request.config.exchange)
    code = start(request, role).exit_code
    if code == 0 and (role is None or role.rank == 0):
        assert request.out is not None
        show(request.out, given)
    return code


def request_of(given: dict[str, Any]) -> "Request":
    """What a profile with these parameters trains."""
    from phalanx.api.profile import DEFAULTS, profile_layer, profile_request
    from phalanx.api.request import make_request
    from phalanx.config.flags import FLAGS
    from phalanx.launch.env.roles import role_from_env

    words = given["settings"] or []
    recipe, overrides = (words[0], words[1:]) if words and "=" not in words[0] else (None, words)
    request = make_request(
        recipe,
        [DEFAULTS, *overrides, profile_layer(given["steps"], given["warmup"])],
        {flag: given.get(flag) for flag in FLAGS},
        out=given["out"],
        init_from=given["init_from"],
        role=role_from_env(),
    )
    return profile_request(request)


def show(folder: Path, given: dict[str, Any]) -> int:
    """Print the profile in a run's folder."""
    from phalanx.observe.profile_report import print_profile
    from phalanx.runs.profile_file import PROFILE_FILE, TRACE_FILE, read_profile

    profile, console = read_profile(folder), Console()
    ranks = [one["rank"] for one in profile["workers"]]
    if given["worker"] not in ranks:
        raise UserError(
            f"there is no worker {given['worker']} in this profile",
            why=f"it has {', '.join(map(str, ranks))}",
            remedy="--worker 0",
        )
    print_profile(console, profile, depth=given["depth"], rank=given["worker"])
    console.print()
    files = f"{folder / PROFILE_FILE}, {folder / TRACE_FILE} (for chrome://tracing or ui.perfetto.dev)"
    console.print(f"files: {files}\nnext: phalanx board {folder}", soft_wrap=True, markup=False, highlight=False)
    return 0
