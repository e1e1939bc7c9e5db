"""The commands. Heavy imports happen when a command runs."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from rich.console import Console

from phalanx import __version__
from phalanx.cli.bench import app as bench_app
from phalanx.cli.board import app as board_app
from phalanx.cli.data import app as data_app
from phalanx.cli.evaluate import Checkpointed, find_checkpoint
from phalanx.cli.evaluate import app as evaluate_app
from phalanx.cli.launch import app as launch_app
from phalanx.cli.observe import app as observe_app
from phalanx.cli.plan import app as plan_app
from phalanx.cli.profile import add_profile
from phalanx.cli.service import app as service_app
from phalanx.cli.sweep import add_sweep
from phalanx.errors import UserError
from phalanx.machine.openmp import let_idle_threads_spin_while_alone
from phalanx.migrate.refuse import MigratingCommand
from phalanx.observe.tables import print_text
from phalanx.roles.process import run_process

if TYPE_CHECKING:
    from collections.abc import Mapping

    from phalanx.config.role import Role
    from phalanx.roles.request import Request

app = typer.Typer(
    name="phalanx",
    help="Train image classifiers on one machine or many: one recipe, one result.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
app.add_typer(bench_app, name="bench")
app.add_typer(data_app)
app.add_typer(evaluate_app)
app.add_typer(board_app)
app.add_typer(launch_app)
app.add_typer(observe_app)
app.add_typer(plan_app)
app.add_typer(service_app)


def main() -> NoReturn:
    """The entry point of the `phalanx` command."""
    _detect_terminal()
    run_process(_run_command)


def _run_command() -> int:
    app(args=_resume_without_value(sys.argv[1:]), prog_name="phalanx", standalone_mode=True)
    return 0


def _detect_terminal() -> None:
    """Print plain lines if a launcher only simulates a terminal. (rich reads this variable.)"""
    from phalanx.launch.env.roles import is_foreign

    if is_foreign():
        os.environ.setdefault("TTY_COMPATIBLE", "0")


def _resume_without_value(args: list[str]) -> list[str]:
    """`--resume` alone means the latest run; typer has no options with an optional value."""
    expanded = []
    for word, following in zip(args, [*args[1:], "--"], strict=True):
        expanded.append(word)
        if word == "--resume" and (following.startswith("-") or ("=" in following and not Path(following).exists())):
            expanded.append("latest")
    return expanded


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"phalanx {__version__}")
        raise typer.Exit


def _verbose(wanted: bool) -> None:
    """Tell this process and all that it starts by the environment: it is no setting of the run."""
    if wanted:
        from phalanx.observe.start_up import VERBOSE

        os.environ[VERBOSE] = "1"


@app.callback()
def phalanx(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="print the version")
    ] = False,
) -> None:
    """Train image classifiers on one machine or many: one recipe, one result."""


@app.command(cls=MigratingCommand)
def train(
    settings: Annotated[
        list[str] | None,
        typer.Argument(metavar="[RECIPE|FILE.yaml] [KEY=VALUE]...", help="default: digits, or images with --data"),
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="a name that `phalanx models` lists, or your own: nets.py:Net")
    ] = None,
    pretrained: Annotated[
        bool | None, typer.Option("--pretrained/--no-pretrained", help="timm's published weights")
    ] = None,
    initializer: Annotated[str | None, typer.Option(help="default, kaiming, xavier, orthogonal …")] = None,
    data: Annotated[str | None, typer.Option(help="digits, synthetic, PATH, or FORMAT:PATH")] = None,
    folds: Annotated[
        int | None, typer.Option(help="cross-validation: so many runs, each validated on another part of the data")
    ] = None,
    teacher: Annotated[
        str | None, typer.Option(help="distillation: learn from RUN, FILE or a timm name; several with commas")
    ] = None,
    batch_size: Annotated[int | None, typer.Option(help="samples per worker and micro-batch")] = None,
    global_batch_size: Annotated[int | None, typer.Option(help="samples per step over all workers, instead")] = None,
    epochs: Annotated[float | None, typer.Option(help="length of training")] = None,
    lr: Annotated[float | None, typer.Option(help="peak learning rate")] = None,
    optimizer: Annotated[str | None, typer.Option(help="sgd, adamw, lars, lamb, lion, muon-sgd …")] = None,
    momentum: Annotated[float | None, typer.Option()] = None,
    weight_decay: Annotated[float | None, typer.Option()] = None,
    lr_schedule: Annotated[str | None, typer.Option(help="constant, step, cosine, polynomial, one-cycle")] = None,
    lr_step_epochs: Annotated[str | None, typer.Option(help="epochs at which the rate drops, such as 30,60,80")] = None,
    lr_factor: Annotated[float | None, typer.Option(help="factor of the rate at each drop")] = None,
    warmup_epochs: Annotated[float | None, typer.Option()] = None,
    label_smoothing: Annotated[float | None, typer.Option()] = None,
    top_k: Annotated[int | None, typer.Option(help="k of the second accuracy; 0 or 1: top-1 alone")] = None,
    precision: Annotated[str | None, typer.Option(help="auto, fp32, bf16, fp16")] = None,
    fast_path: Annotated[str | None, typer.Option(help="auto, native, products, off: faster layers on a CPU")] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu, cuda, cuda:1, mps")] = None,
    gpus: Annotated[str | None, typer.Option(help="one worker for each GPU listed, such as 0,1,2,3")] = None,
    seed: Annotated[int | None, typer.Option()] = None,
    monitor: Annotated[int | None, typer.Option(help="log norms every so many steps")] = None,
    log_every: Annotated[int | None, typer.Option(help="steps between log lines")] = None,
    log_dir: Annotated[str | None, typer.Option(help="folder for each process's log; default RUN/logs")] = None,
    log: Annotated[
        str | None, typer.Option(help="also report to tensorboard, wandb, mlflow, trackio, csv; several by commas")
    ] = None,
    notify: Annotated[
        str | None, typer.Option(help="at the end, a failure, a new best: 'command {event} {run}', or an http address")
    ] = None,
    update_method: Annotated[str | None, typer.Option(help="local, collective, pserver")] = None,
    workers: Annotated[int | None, typer.Option(help="worker processes on this machine")] = None,
    servers: Annotated[int | None, typer.Option(help="parameter servers on this machine")] = None,
    mode: Annotated[str | None, typer.Option(help="pserver: sync, async, ssp:S")] = None,
    compress: Annotated[str | None, typer.Option(help="none, fp16, bf16, 2bit, 1bit, topk:R, powersgd:R")] = None,
    evaluator: Annotated[
        bool | None, typer.Option("--evaluator/--no-evaluator", help="evaluate checkpoints in a separate process")
    ] = None,
    max_restarts: Annotated[int | None, typer.Option(help="how often lost workers are restarted")] = None,
    min_workers: Annotated[int | None, typer.Option(help="continue with this few if no restarts are left")] = None,
    data_service: Annotated[str | None, typer.Option(help="data servers that make batches: HOST:PORT,…")] = None,
    data_servers: Annotated[int | None, typer.Option(help="data servers on this machine")] = None,
    teacher_service: Annotated[str | None, typer.Option(help="processes that run --teacher: HOST:PORT,…")] = None,
    teachers: Annotated[int | None, typer.Option(help="processes on this machine that run --teacher")] = None,
    out: Annotated[Path | None, typer.Option(help="the run folder; default runs/NAME-TIME")] = None,
    resume: Annotated[
        str | None, typer.Option(help="continue a run, or from one of its checkpoints; without a value the latest run")
    ] = None,
    at: Annotated[
        str | None, typer.Option(help="with --resume: from the checkpoint there, such as 30ep, 5000st, 50%")
    ] = None,
    init_from: Annotated[Path | None, typer.Option(help="start from a run's, checkpoint's or file's weights")] = None,
    accept_code: Annotated[
        str | None, typer.Option(help="with --resume, if your own code has changed: run (the run's copy) or new")
    ] = None,
    verbose: Annotated[
        bool,
        typer.Option("--verbose", "-v", callback=_verbose, help="print every setting chosen at the start, and why"),
    ] = False,
) -> None:
    """Train a classifier, by a recipe, settings and flags."""
    from phalanx.api.start import start
    from phalanx.launch.env.complete_role import complete
    from phalanx.launch.env.dmlc_scheduler import await_end
    from phalanx.launch.env.roles import role_from_env
    from phalanx.net.admission import warning_of
    from phalanx.roles.lifeline import hold_lifeline

    role = role_from_env()
    request = request_from(locals(), role)
    for note in request.notes:
        _print_note(note)
    hold_lifeline()
    if role is not None:
        role = complete(role, request.config.exchange)
        _print_note(warning_of(role))
        if role.kind == "scheduler":
            await_end(role, request.config.exchange.timeout_s)
            raise typer.Exit
    raise typer.Exit(start(request, role).exit_code)


add_sweep(app, train)
add_profile(app, train)


def request_from(given: "Mapping[str, Any]", role: "Role | None" = None) -> "Request":
    """The request of `train`'s parameters."""
    from phalanx.api.request import make_request
    from phalanx.config.flags import FLAGS

    words = given["settings"] or []
    recipe, overrides = (words[0], words[1:]) if words and "=" not in words[0] else (None, words)
    return make_request(
        recipe,
        overrides,
        {flag: given[flag] for flag in FLAGS},
        out=given["out"],
        resume=given["resume"],
        at=given["at"],
        init_from=given["init_from"],
        accept_code=given["accept_code"],
        role=role,
    )


def _print_note(text: str) -> None:
    """Print a line to standard error; nothing for an empty note."""
    if text:
        print_text(Console(stderr=True), text)


@app.command()
def recipes(
    name: Annotated[str | None, typer.Argument(help="a recipe to print, resolved")] = None,
) -> None:
    """List the recipes with their claims, or print one with the origin of each value."""
    from phalanx.commands.recipes import list_recipes, show_recipe

    console = Console()
    if name is None:
        list_recipes(console)
    else:
        show_recipe(console, name)


@app.command()
def models(
    pattern: Annotated[str | None, typer.Argument(help="part of a name, or a glob such as 'resnet*'")] = None,
    size: Annotated[int | None, typer.Option(min=1, help="count GMACs at this image size")] = None,
) -> None:
    """List models with their parameters and GMACs."""
    from phalanx.commands.models import show_models

    show_models(Console(), pattern, size)


@app.command()
def predict(
    checkpoint: Checkpointed,
    images: Annotated[
        list[str], typer.Argument(help="files, folders, globs, or data as --data of train; data.KEY=VALUE")
    ],
    top_k: Annotated[
        int | None, typer.Option(min=1, help="default: 5; with several labels a sample, all above the threshold")
    ] = None,
    threshold: Annotated[
        float | None, typer.Option(min=0, max=1, help="with several labels a sample; default: 0.5")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="one JSON object a line")] = False,
    as_tsv: Annotated[bool, typer.Option("--tsv", help="tab-separated lines")] = False,
    device: Annotated[str, typer.Option()] = "auto",
    split: Annotated[str, typer.Option(help="of data with several: train, val or all")] = "all",
    labels: Annotated[bool, typer.Option("--labels", help="also the true labels, of data that has them")] = False,
) -> None:
    """Classify images."""
    if as_json and as_tsv:
        raise UserError("--json cannot be used with --tsv", why="output has one format", remedy="leave one out")
    found = find_checkpoint(checkpoint)
    from phalanx.commands.predict import predict_images
    from phalanx.commands.predict_inputs import SPLITS

    style = "json" if as_json else "tsv" if as_tsv else "table"
    chosen = next((known for known in SPLITS if known == split), None)
    if chosen is None:
        raise UserError(f"--split cannot be {split!r}", why="unknown", remedy=f"one of {', '.join(SPLITS)}")
    code = predict_images(Console(), found, images, top_k, style, device, threshold, split=chosen, labels=labels)
    raise typer.Exit(code)


@app.command()
def plot(
    runs: Annotated[
        list[str],
        typer.Argument(
            metavar="[NAME=]PATH...", help="run folders, and logs of other systems; equal names are one line"
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="ends in .png, .svg or .pdf")] = Path("curves.png"),
    against: Annotated[
        str | None, typer.Option(help="step, epoch or time; default: epoch, or what all logs have")
    ] = None,
    panels: Annotated[str | None, typer.Option(help="what to draw, such as top1,loss,lr,top5,METRIC")] = None,
    only: Annotated[str | None, typer.Option(help="val or train; default: both")] = None,
    seeds: Annotated[
        str, typer.Option(help="runs that differ only in the seed: mean and range or std; or lines")
    ] = "range",
    smooth: Annotated[float, typer.Option(help="weight of the moving average of training curves, 0 to 1")] = 0.0,
    xlim: Annotated[str | None, typer.Option(help="such as 0:20, 20: or :20")] = None,
    ylim: Annotated[list[str] | None, typer.Option(help="such as top1=80:95; may be repeated")] = None,
    log: Annotated[list[str] | None, typer.Option(help="panels with a logarithmic axis, such as loss")] = None,
    style: Annotated[str, typer.Option(help="screen or paper (3.3 or 6.9 inches wide)")] = "screen",
    tag: Annotated[
        list[str] | None, typer.Option(help="what a log calls a curve, such as val/top1=eval/acc; may be repeated")
    ] = None,
) -> None:
    """Draw the learning curves of runs, and of other systems' logs, in one figure."""
    from phalanx.commands.plot import plot_curves, plot_options

    options = plot_options(
        against=against,
        panels=panels,
        only=only,
        seeds=seeds,
        smooth=smooth,
        xlim=xlim,
        ylim=ylim or [],
        log=log or [],
        style=style,
        tag=tag or [],
    )
    plot_curves(Console(), runs, out, options)


@app.command()
def compare(
    runs: Annotated[list[Path], typer.Argument(help="run folders")],
    form: Annotated[
        str | None, typer.Option("--format", help="a table: text, markdown, csv; default: text for more than two runs")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="a table's file: .txt, .md, .csv; two runs' figure: .png, .svg, .pdf"),
    ] = None,
) -> None:
    """Compare two runs (weights, metrics, curves), or print a table of more."""
    from phalanx.commands.compare_table import show_results, table_format

    chosen = table_format(form, out)
    if len(runs) == 2 and chosen is None:
        from phalanx.commands.compare import compare_runs

        compare_runs(Console(), runs[0], runs[1], out or Path("compare.png"))
    else:
        show_results(Console(), runs, chosen, out)


@app.command()
def export(
    checkpoint: Checkpointed,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="folder; default RUN/export")] = None,
    form: Annotated[
        list[str] | None,
        typer.Option("--format", help="safetensors, torch, onnx; may be repeated; default the first two"),
    ] = None,
) -> None:
    """Export a trained model: safetensors with config, torch.export, ONNX."""
    from phalanx.commands.export import export_checkpoint

    export_checkpoint(Console(), find_checkpoint(checkpoint), out, form or [])


@app.command()
def doctor(
    job: Annotated[bool, typer.Option("--job", help="sockets of a running job, and who may talk to each")] = False,
    which: Annotated[str | None, typer.Argument(metavar="[RUN|PID]", help="the job; default: the only one")] = None,
    gpu: Annotated[bool, typer.Option("--gpu", help="GPUs, their libraries and variables, alone")] = False,
) -> None:
    """Show versions, the machine, the settings chosen for it, and whether each part works; or a job's sockets."""
    if job or which is not None:
        from phalanx.commands.doctor_job import show_sockets

        return show_sockets(Console(), which)
    if gpu:
        from phalanx.commands.doctor_gpu import examine_gpus

        return examine_gpus(Console())
    let_idle_threads_spin_while_alone("auto")  # as training would
    from phalanx.commands.doctor import examine

    raise typer.Exit(examine(Console()))


@app.command()
def selftest(
    out: Annotated[Path, typer.Option("--out", "-o", help="the report")] = Path("phalanx-selftest.txt"),
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1")] = "auto",
) -> None:
    """Check in two minutes whether this machine's GPUs train as they should, and write a report to send."""
    from phalanx.commands.selftest import selftest as run_selftest

    raise typer.Exit(run_selftest(Console(), out, device))
