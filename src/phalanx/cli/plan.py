"""`phalanx plan`: what a cluster would do, before it is rented. Heavy imports happen when it runs."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from phalanx.errors import UserError

if TYPE_CHECKING:
    from phalanx.plan.predict import Prediction
    from phalanx.plan.setup import Setup

app = typer.Typer(add_completion=False)
CLUSTER = ("device", "hosts", "per_host", "link", "inside", "cores", "server_hosts", "price")
FLAGS = (
    *("model", "data", "batch_size", "global_batch_size", "epochs", "optimizer", "precision"),
    *("update_method", "servers", "mode", "compress"),
)


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
    plot: Annotated[Path | None, typer.Option(help="draw it: .png, .svg or .pdf")] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="also write everything to this file")] = None,
) -> None:
    """Predict step time, memory, hours and cost on a cluster; recommend an arrangement, and say what binds it."""
    from phalanx.api.plan_setup import Asked, make_setup
    from phalanx.observe.figures import refuse_other_endings, save_figure
    from phalanx.plan.goals import parse_goal
    from phalanx.plan.plan import make_plan
    from phalanx.plan.report import print_plan

    given = locals()
    goals = [parse_goal(text) for text in goal or ()]
    if plot is not None:
        refuse_other_endings(plot)
    words = settings or []
    subject, overrides = (words[0], words[1:]) if words and "=" not in words[0] else (None, words)
    if check and subject is None:
        subject, overrides = _measured_subject(check[0], overrides)
    asked = Asked(
        subject,
        overrides,
        {name: given[name] for name in FLAGS},
        {name: given[name] for name in CLUSTER},
        cluster,
        parse_counts(workers),
        samples,
        [*(from_ or ()), *(path for path in check or () if device is None and str(path) != subject)],
        measure,
    )
    setup, counts = make_setup(asked)
    console = Console()
    if check:
        _check(console, setup, check)
        return
    if goals:
        _offers(console, setup, goals)
        return
    made = make_plan(setup, counts)
    changed = _changes(setup, counts[-1], what_if or [])
    print_plan(console, made)
    if changed:
        _print_changes(console, [("as it is", made.asked), *changed])
    if plot is not None:
        save_figure(made.figure(), plot)
    if json_file is not None:
        json_file.write_text(json.dumps(made.to_dict(), indent=1) + "\n", encoding="utf-8")


def _measured_subject(path: Path, overrides: list[str]) -> tuple[str, list[str]]:
    """What a measurement is of: the run itself, or the model that a benchmark trained."""
    from phalanx.plan.measured import read_measurement

    if path.is_dir():
        return str(path), overrides
    found = read_measurement(path)
    known = {"model.name": found.model, "data.synthetic.size": found.image_size, "train.batch_size": found.batch_size}
    return "synthetic", [*(f"{key}={value}" for key, value in known.items() if value), *overrides]


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


def _changes(setup: "Setup", workers: int, changes: list[str]) -> "list[tuple[str, Prediction]]":
    """The plan's last row with each change."""
    from phalanx.plan.what_if import what_if

    return [(text, what_if(setup, workers, text)) for text in changes]


def _print_changes(console: Console, rows: "list[tuple[str, Prediction]]") -> None:
    from phalanx.observe.tables import print_line, print_table
    from phalanx.plan.report import COLUMNS, row_of

    first = rows[0][1].images_per_s.expected
    lines = [[name, f"{each.images_per_s.expected / first:.2f}×", *row_of(each)] for name, each in rows]
    print_line(console, "What if:")
    columns = ("change", "speed", *COLUMNS)
    print_table(console, columns, lines, numbers=columns[1:])


def _offers(console: Console, setup: "Setup", goals: list[Any]) -> None:
    """What to rent."""
    from phalanx.observe.tables import print_line, print_rows, print_table
    from phalanx.plan.commands import launch_command
    from phalanx.plan.goals import offers, refuse_unmet
    from phalanx.plan.report import COLUMNS, row_of

    found = offers(setup, goals)
    names = [name for name in COLUMNS if name != "cost" or setup.cluster.price is not None]
    columns = ["", "arranged", *names]
    lines = []
    for each in found.all:
        mark = "rent this" if each is found.chosen else "frontier" if each in found.frontier else ""
        lines.append([mark, str(each.arranged), *row_of(each)[: len(names)]])
    print_line(console, f"{setup.config.name} on {setup.cluster.device}, {' and '.join(map(str, goals))}:")
    print_table(console, columns, lines, numbers=names)
    refuse_unmet(found)
    if found.chosen is not None:
        print_rows(console, {"run": launch_command(setup, found.chosen)}, bold=("run",))


def _check(console: Console, setup: "Setup", paths: list[Path]) -> None:
    """Predicted beside measured."""
    import statistics

    from phalanx.observe.tables import print_line, print_table
    from phalanx.plan.check import check, check_rows
    from phalanx.plan.measured import read_measurement

    found = [each for path in paths for each in check(setup, read_measurement(path))]
    columns = ("workers", "arranged", "batch", "measured images/s", "predicted", "error")
    print_table(console, columns, check_rows(found), numbers=columns)
    errors = [abs(each.error) for each in found]
    print_line(console, f"median error {100 * statistics.median(errors):.0f} %, largest {100 * max(errors):.0f} %")
