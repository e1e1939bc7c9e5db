"""`phalanx plan`: what a cluster would do, before it is rented. Heavy imports happen when it runs."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from phalanx.errors import UserError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from phalanx.plan.plan import Plan
    from phalanx.plan.setup import Setup

    Answer = tuple[dict[str, Any], Callable[[], Figure]]  # for --json, and for --plot

app = typer.Typer(add_completion=False)


@app.command()
def plan(
    settings: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[RECIPE|FILE.yaml|RUN] [KEY=VALUE]...", help="what to train; a run is taken as measured"
        ),
    ] = None,
    device: Annotated[str | None, typer.Option(help="of a worker: v100, a100, cpu-amx …")] = None,
    hosts: Annotated[int | None, typer.Option(help="hosts, all alike")] = None,
    per_host: Annotated[int | None, typer.Option(help="devices of a host, one worker each; default 1")] = None,
    link: Annotated[str | None, typer.Option(help="of a host: 25Gbit, ib-hdr …")] = None,
    inside: Annotated[
        str | None, typer.Option(help="between devices of a host; default: as usual for the device")
    ] = None,
    cores: Annotated[int | None, typer.Option(help="of a host; they decode images")] = None,
    server_hosts: Annotated[int | None, typer.Option(help="hosts with parameter servers alone")] = None,
    data_servers: Annotated[int | None, typer.Option(help="further hosts that make batches, with --cores each")] = None,
    price: Annotated[float | None, typer.Option(help="of a host for an hour")] = None,
    cluster: Annotated[Path | None, typer.Option(help="a YAML file with these, and more")] = None,
    workers: Annotated[str | None, typer.Option(help="numbers of workers to predict, such as 1,8,32")] = None,
    goal: Annotated[list[str] | None, typer.Option(help="time<6h or cost<400: what to rent; may be repeated")] = None,
    what_if: Annotated[list[str] | None, typer.Option(help="a change, such as link=10Gbit; may be repeated")] = None,
    measure: Annotated[bool, typer.Option("--measure", help="time one worker on this machine, now")] = False,
    from_: Annotated[
        list[Path] | None, typer.Option("--from", help="a run, or a file of `bench --json`: measured figures")
    ] = None,
    check: Annotated[
        list[Path] | None, typer.Option(help="a run, or a file of `bench scaling --json`: predicted beside measured")
    ] = None,
    samples: Annotated[
        int | None, typer.Option(min=1, help="training images, where the data's name does not say")
    ] = None,
    model: Annotated[str | None, typer.Option(help="as for `phalanx train`, like the following")] = None,
    data: Annotated[str | None, typer.Option()] = None,
    batch_size: Annotated[int | None, typer.Option()] = None,
    global_batch_size: Annotated[int | None, typer.Option()] = None,
    epochs: Annotated[float | None, typer.Option()] = None,
    optimizer: Annotated[str | None, typer.Option()] = None,
    precision: Annotated[str | None, typer.Option()] = None,
    update_method: Annotated[str | None, typer.Option()] = None,
    servers: Annotated[int | None, typer.Option()] = None,
    mode: Annotated[str | None, typer.Option()] = None,
    compress: Annotated[str | None, typer.Option()] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="the folder of the run that is planned: the plan is kept there for `phalanx board`"),
    ] = None,
    plot: Annotated[Path | None, typer.Option(help="draw it: .png, .svg or .pdf")] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="also write everything to this file")] = None,
) -> None:
    """Predict step time, memory, hours and cost on a cluster; recommend an arrangement, and say what binds it."""
    from phalanx.api.plan_setup import CLUSTER_OPTIONS, RECIPE_FLAGS, Asked, make_setup, plan_asked
    from phalanx.observe.figures import refuse_other_endings, save_figure

    given = locals()
    if check and (what_if or goal or out):
        raise UserError(
            f"--check and {'--what-if' if what_if else '--goal' if goal else '--out'} exclude each other",
            why="a check predicts jobs that were measured",
            remedy="give one of them",
        )
    if plot is not None:
        refuse_other_endings(plot)
    words = settings or []
    subject, overrides = (words[0], words[1:]) if words and "=" not in words[0] else (None, words)
    asked = Asked(
        subject,
        overrides,
        {name: given[name] for name in RECIPE_FLAGS},
        {name: given[name] for name in CLUSTER_OPTIONS},
        cluster,
        parse_counts(workers),
        samples,
        [*(from_ or ()), *(path for path in check or () if device is None and str(path) != subject)],
        measure,
        check or (),
        out,
    )
    console = Console()
    if check:
        answer = _check(console, make_setup(asked)[0], check)
    else:
        answer = _print(console, plan_asked(asked, goal or ()), what_if or ())
    told, figure = answer
    if plot is not None:
        save_figure(figure(), plot)
    if json_file is not None:
        json_file.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")


def parse_counts(text: str | None) -> tuple[int, ...]:
    """`1,8,32`."""
    parts = [part.strip() for part in text.split(",")] if text is not None else []
    wrong = next((part for part in parts if not part.isdecimal() or int(part) < 1), None)
    if wrong is not None:
        raise UserError(
            f"--workers {text}: {wrong or 'nothing'} is no number of workers",
            why="it is a list of counts from 1 upwards, separated by commas",
            remedy="--workers 1,8,32",
        )
    return tuple(sorted(set(map(int, parts))))


def _print(console: Console, plan: "Plan", changes: Sequence[str]) -> "Answer":
    """The plan, and it with each change."""
    from phalanx.observe.tables import print_line
    from phalanx.plan.report import print_plan

    changed = plan.what_if(*changes) if changes else None  # before anything is printed: a change may be wrong
    print_plan(console, plan)
    if changed is None:
        return plan.to_dict(), plan.offers.figure if plan.offers is not None else plan.figure
    print_line(console, "\nWhat if:")
    changed.text_table.print(console)
    return {**plan.to_dict(), "what_if": changed.to_list()}, changed.figure


def _check(console: Console, setup: "Setup", paths: list[Path]) -> "Answer":
    """Predicted beside measured."""
    from phalanx.observe.tables import print_line
    from phalanx.plan.check import check_files

    found = check_files(setup, paths)
    found.text_table.print(console)
    print_line(console, found.summary)
    return found.to_dict(), found.figure
