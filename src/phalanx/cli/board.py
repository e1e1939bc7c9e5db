"""`phalanx board`: runs in the browser. Heavy imports happen when it runs."""

from typing import Annotated

import typer
from rich.console import Console

app = typer.Typer()


@app.command()
def board(
    runs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[RUNS]...", help="run folders, or folders of runs, here or as HOST:FOLDER; default: runs/"
        ),
    ] = None,
    host: Annotated[str, typer.Option(help="the address to listen at; 0.0.0.0: all of this machine")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="default: any that is free")] = 0,
    ssh: Annotated[str, typer.Option(help="the ssh command for HOST:FOLDER, with any options")] = "ssh",
    control: Annotated[
        bool, typer.Option("--control", help="let the page stop jobs, and run a run's own code to draw its samples")
    ] = False,
) -> None:
    """Show runs in the browser, live: curves, mistakes, settings, logs, and where a job's time goes."""
    from phalanx.commands.board import show_board

    show_board(Console(), runs or [], host=host, port=port, control=control, ssh=ssh)
