"""`phalanx launch`, status, stop, logs, and the agent. Heavy imports happen when a command runs."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from phalanx.api.launch_options import LAUNCHERS, LaunchOptions, add_to_flags, set_flag, start_launch
from phalanx.errors import UserError
from phalanx.migrate.refuse import MigratingCommand

app = typer.Typer(add_completion=False)

Run = Annotated[Path | None, typer.Argument(metavar="[RUN]", help="a run folder, or k8s:JOB; default: the latest here")]


@app.command(cls=MigratingCommand, context_settings={"ignore_unknown_options": False})
def launch(
    words: Annotated[
        list[str], typer.Argument(metavar="-- train|sweep|profile [RECIPE] ...", help="the command for one machine")
    ],
    workers: Annotated[int | None, typer.Option("-n", "--workers", min=1, help="workers over all hosts")] = None,
    servers: Annotated[int | None, typer.Option("-s", "--servers", min=0, help="parameter servers")] = None,
    hostfile: Annotated[
        Path | None, typer.Option("-H", "--hostfile", help="one host a line, such as: node1 slots=8")
    ] = None,
    ips: Annotated[str | None, typer.Option(help="hosts, separated by commas")] = None,
    launcher: Annotated[
        str | None, typer.Option(help=f"{', '.join(LAUNCHERS)}; default: ssh with hosts, else local")
    ] = None,
    servers_on: Annotated[str | None, typer.Option(help="hosts for servers only; default: those of workers")] = None,
    evaluator_on: Annotated[
        str | None,
        typer.Option(help="a host for the evaluator only, or `last`; default: one with the fewest roles"),
    ] = None,
    sync_dst_dir: Annotated[str | None, typer.Option(help="copy the current directory there first, by rsync")] = None,
    setup: Annotated[str, typer.Option(help="a shell command to run once on each host first")] = "",
    python: Annotated[str | None, typer.Option(help="the interpreter on the hosts")] = None,
    ssh: Annotated[str, typer.Option(help="ssh: the ssh command, with any options")] = "ssh",
    iface: Annotated[str | None, typer.Option(help="the network interface; default: by the route")] = None,
    port_range: Annotated[str | None, typer.Option(help="such as 17000-17100; default: any free ports")] = None,
    max_restarts: Annotated[int | None, typer.Option(min=0, help="how often lost workers are restarted")] = None,
    min_workers: Annotated[int | None, typer.Option(min=1, help="continue with this few after all restarts")] = None,
    log_dir: Annotated[str | None, typer.Option(help="folder for each role's log, here; default RUN/logs")] = None,
    mpirun: Annotated[str, typer.Option(help="mpi: the mpirun command, with any options")] = "mpirun",
    nodes: Annotated[int | None, typer.Option(min=1, help="slurm, sge, pbs, qrsh, yarn, ray: number of hosts")] = None,
    time: Annotated[str | None, typer.Option(help="slurm, sge, pbs, k8s, yarn: the limit, such as 1:30:00")] = None,
    partition: Annotated[str | None, typer.Option(help="slurm, sge, pbs, yarn: the partition or queue")] = None,
    account: Annotated[str | None, typer.Option(help="slurm, sge, pbs: the account")] = None,
    gpus_per_node: Annotated[int | None, typer.Option(min=1, help="slurm, sge, pbs: GPUs of a host")] = None,
    pe: Annotated[str | None, typer.Option(help="sge: the parallel environment")] = None,
    directive: Annotated[
        list[str] | None, typer.Option(help="slurm, sge, pbs: a further line of the script, such as --qos=high")
    ] = None,
    detach: Annotated[bool, typer.Option("--detach", help="slurm, sge, pbs, k8s: submit, and do not follow")] = False,
    cpus_per_worker: Annotated[int | None, typer.Option(min=1, help="k8s, yarn, ray: cores of a worker")] = None,
    gpus_per_worker: Annotated[int | None, typer.Option(min=1, help="k8s, yarn, ray: GPUs of a worker")] = None,
    memory_per_worker: Annotated[int | None, typer.Option(min=1, help="k8s, yarn, ray: MB of a worker")] = None,
    image: Annotated[str | None, typer.Option(help="k8s: the image of the pods")] = None,
    namespace: Annotated[str | None, typer.Option(help="k8s: the namespace")] = None,
    volume_claim: Annotated[str | None, typer.Option(help="k8s: a volume for data and runs")] = None,
    run_as: Annotated[int | None, typer.Option(min=0, help="k8s: the user id in the pods; default: 1000")] = None,
    image_pull_secret: Annotated[
        list[str] | None, typer.Option(help="k8s: a secret for the image's registry; may be repeated")
    ] = None,
    node_selector: Annotated[
        list[str] | None, typer.Option(help="k8s: KEY=VALUE of the nodes to use; may be repeated")
    ] = None,
    toleration: Annotated[
        list[str] | None,
        typer.Option(help="k8s: a taint to tolerate, KEY, KEY=VALUE or KEY=VALUE:EFFECT; may be repeated"),
    ] = None,
    env: Annotated[list[str] | None, typer.Option(help="k8s: NAME=VALUE for all pods; may be repeated")] = None,
    label: Annotated[list[str] | None, typer.Option(help="k8s: KEY=VALUE of job and pods; may be repeated")] = None,
    queue: Annotated[str | None, typer.Option(help="k8s: the local queue of Kueue")] = None,
    priority_class: Annotated[str | None, typer.Option(help="k8s: the pods' priority class")] = None,
    patch: Annotated[
        Path | None, typer.Option(help="k8s: a file with any other change of the Job, merged by kubectl")
    ] = None,
    gang: Annotated[
        bool, typer.Option("--gang", help="k8s: begin when the cluster has room for all pods; hold nothing until then")
    ] = False,
    resource_manager: Annotated[str | None, typer.Option(help="yarn: such as http://rm:8088")] = None,
    address: Annotated[str | None, typer.Option(help="ray: the cluster; default: a running or a new one")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="show what would be done, and start nothing")] = False,
) -> None:
    """Train on many hosts. After -- comes the same command as on one machine."""
    from phalanx.cli.main import request_from
    from phalanx.roles.lifeline import hold_lifeline

    options = LaunchOptions.of(locals())
    hold_lifeline()
    given = {**_parameters(words)}
    if words[0] == "profile" and evaluator_on:
        raise UserError(
            "a profile cannot be launched with --evaluator-on",
            why="nothing is evaluated in it",
            remedy="leave it out",
        )
    set_flag(given, "log_dir", "--log-dir", log_dir)
    add_to_flags(given, options, workers=workers, servers=servers)
    if words[0] == "sweep":
        raise typer.Exit(_launch_sweep(given, options))
    if words[0] == "profile":
        raise typer.Exit(_launch_profile(given, options))
    if options.launcher == "k8s" and given["resume"] is not None and not (dry_run and Path(given["resume"]).exists()):
        raise typer.Exit(_resume_in_cluster(given, options))
    raise typer.Exit(start_launch(request_from(given), options, Console(stderr=not dry_run)))


def _resume_in_cluster(given: dict[str, Any], options: LaunchOptions) -> int:
    """Resume a run that is on a volume of the cluster: its settings are fetched from there."""
    from dataclasses import replace

    from phalanx.api.launch_options import kubernetes_options
    from phalanx.api.launcher_options import refuse_options
    from phalanx.cli.main import request_from
    from phalanx.commands.cluster_run import copied_run

    refuse_options(options, "k8s")
    asked = Path(given["resume"]), kubernetes_options(options), options.python
    with copied_run(*asked, dry_run=options.dry_run) as (given["resume"], found):
        options = replace(options, resume_in_pods=found.resume)
        return start_launch(request_from(given), options, Console(stderr=not options.dry_run))


def _launch_sweep(given: dict[str, Any], options: LaunchOptions) -> int:
    """Every run of a sweep as a job of its own, one after the other."""
    from phalanx.cli.sweep import run
    from phalanx.roles.result import Result

    submitted = "--dry-run" if options.dry_run else "--detach" if options.detach else None
    if submitted or options.launcher == "k8s":
        raise UserError(
            f"a sweep cannot be launched with {submitted or '--launcher k8s'}",
            why="its runs follow one another, and the table is made from all of them",
            remedy="leave it out; or launch each run: phalanx launch ... -- train RECIPE optim.lr=0.1",
        )
    return run(given, lambda request, _: Result(start_launch(request, options, Console(stderr=True)), request.out))


def _launch_profile(given: dict[str, Any], options: LaunchOptions) -> int:
    """A profile of a job; it is shown where the run's folder is here when the job ends."""
    from phalanx.cli.profile import request_of, show
    from phalanx.runs.profile_file import PROFILE_FILE

    request = request_of(given)
    code = start_launch(request, options, Console(stderr=not options.dry_run))
    if code == 0 and request.out is not None and (request.out / PROFILE_FILE).exists():
        show(request.out, given)
    return code


def parse_train(words: Sequence[str]) -> Mapping[str, Any]:
    """The parameters of `phalanx train` with these arguments."""
    return _parse("train", words)


def _parse(command: str, words: Sequence[str]) -> Mapping[str, Any]:
    from phalanx.cli.main import app as phalanx

    group = typer.main.get_group(phalanx)
    return group.commands[command].make_context(command, list(words)).params


def _parameters(words: Sequence[str]) -> Mapping[str, Any]:
    """The parameters of the command after `--`: `train`, `sweep` or `profile`."""
    if not words or words[0] not in ("train", "sweep", "profile"):
        raise UserError(
            f"{words[0]!r} cannot be launched" if words else "there is nothing to launch",
            why="after -- comes the command for one machine: train, sweep or profile",
            remedy="phalanx launch -n 2 -- train digits",
        )
    return _parse(words[0], words[1:])


@app.command()
def status(run: Run = None) -> None:
    """Show every role of a job: host, state, step, speed, last message."""
    from phalanx.commands.status import show_status

    show_status(Console(), run)


@app.command()
def stop(run: Run = None) -> None:
    """Stop a job, from any terminal of its launching host: workers save first; a second stop ends it at once."""
    from phalanx.commands.stop import stop_job

    stop_job(Console(), run)


@app.command()
def logs(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="a run folder, or k8s:JOB")],
    role: Annotated[str | None, typer.Argument(metavar="[ROLE]", help="such as trainer-1; default: all")] = None,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="continue until the job ends")] = False,
) -> None:
    """Print the logs of a job's roles."""
    from phalanx.commands.logs import print_logs

    print_logs(run, role, follow=follow, out=sys.stdout)


@app.command()
def get(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="k8s:JOB, or the folder that its launch made here")],
    into: Annotated[Path | None, typer.Argument(metavar="[FOLDER]", help="default: its path on the volume")] = None,
) -> None:
    """Copy events, summary, curves, settings and logs of a Kubernetes job from its volume to this host."""
    from phalanx.commands.cluster_run import get_run

    get_run(Console(), run, into)


@app.command(hidden=True)
def agent() -> None:
    """The agent that the launcher starts on each host; it uses standard input and output."""
    from phalanx.launch.agent import main

    main()
