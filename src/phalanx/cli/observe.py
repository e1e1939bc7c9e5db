"""`phalanx runs`, `top` and `export-log`: looking at runs, and giving them to others. Imports happen late."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

app = typer.Typer(add_completion=False)


@app.command("runs")
def list_runs(
    folder: Annotated[Path, typer.Argument(help="a folder of runs")] = Path("runs"),
    sort: Annotated[str, typer.Option(help="since, name, state, recipe, best or speed")] = "since",
    state: Annotated[str | None, typer.Option(help="only running, finished, stopped or lost ones")] = None,
    match: Annotated[str | None, typer.Option(help="only those whose name or recipe has this text")] = None,
) -> None:
    """List runs: state, best and last accuracy, speed, progress with the time left, hosts."""
    from phalanx.commands.runs import show_runs

    show_runs(Console(), folder, sort, state, match)


@app.command()
def top(
    run: Annotated[
        str | None,
        typer.Argument(metavar="RUN|JOB", help="a run folder, HOST:FOLDER, or a job's number; default: the latest"),
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="print the view once, as text")] = False,
    ssh: Annotated[str, typer.Option(help="the ssh command for HOST:FOLDER, with any options")] = "ssh",
) -> None:
    """Watch a job that runs elsewhere: progress, accuracy, speed, workers. Leave with q."""
    from phalanx.commands.top import show_top

    show_top(Console(), run, once=once, ssh=ssh)


@app.command("export-log")
def export_log(
    run: Annotated[Path, typer.Argument(help="a run folder")],
    to: Annotated[str, typer.Option(help="tensorboard, wandb, mlflow, trackio, csv")],
    project: Annotated[str, typer.Option(help="the project or experiment there")] = "phalanx",
) -> None:
    """Give the events of a run to a logger, as if `--log` had named it."""
    from phalanx.commands.export_log import export_log as work

    work(Console(), run, to, project)
