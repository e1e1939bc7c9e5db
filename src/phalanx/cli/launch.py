"""`phalanx launch` and what goes with it: status, stop, logs, and the agent. Nothing heavy is imported."""

import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from phalanx.errors import UserError, nearest
from phalanx.migrate.refuse import MigratingCommand

app = typer.Typer(add_completion=False)

# Where each launcher's `start(plan, console) -> exit code` is; with `plan.dry_run` it only says what it would do.
LAUNCHERS = {
    "local": "phalanx.launch.launchers.local",
    "ssh": "phalanx.launch.launchers.ssh",
    "mpi": "phalanx.launch.launchers.mpi",
    "slurm": "phalanx.launch.launchers.batch",
    "sge": "phalanx.launch.launchers.batch",
    "pbs": "phalanx.launch.launchers.batch",
    "srun": "phalanx.launch.launchers.allocation",
    "qrsh": "phalanx.launch.launchers.allocation",
    "k8s": "phalanx.launch.launchers.kubernetes",
    "yarn": "phalanx.launch.launchers.yarn",
    "ray": "phalanx.launch.launchers.ray",
}
Run = Annotated[Path | None, typer.Argument(metavar="[RUN]", help="a run's folder; default: the latest here")]


@app.command(cls=MigratingCommand, context_settings={"ignore_unknown_options": False})
def launch(
    words: Annotated[list[str], typer.Argument(metavar="-- train [RECIPE] ...", help="the command of one machine")],
    workers: Annotated[int | None, typer.Option("-n", "--workers", min=1, help="trainers over all hosts")] = None,
    servers: Annotated[int | None, typer.Option("-s", "--servers", min=0, help="parameter servers")] = None,
    hostfile: Annotated[
        Path | None, typer.Option("-H", "--hostfile", help="a host a line, such as: node1 slots=8")
    ] = None,
    ips: Annotated[str | None, typer.Option(help="hosts, separated by commas, instead")] = None,
    launcher: Annotated[
        str | None, typer.Option(help=f"{', '.join(LAUNCHERS)}; default ssh where hosts are named")
    ] = None,
    servers_on: Annotated[str | None, typer.Option(help="hosts for servers alone; default beside trainers")] = None,
    evaluator_on: Annotated[
        str | None, typer.Option(help="a host for the evaluator alone, or `last`; default: where the fewest roles are")
    ] = None,
    sync_dst_dir: Annotated[str | None, typer.Option(help="send this directory there first, by rsync")] = None,
    setup: Annotated[str, typer.Option(help="a shell command to run once on each host first")] = "",
    python: Annotated[str | None, typer.Option(help="the interpreter on the hosts")] = None,
    ssh: Annotated[str, typer.Option(help="the ssh command, with options if need be")] = "ssh",
    iface: Annotated[str | None, typer.Option(help="the network interface; default: on the way to the others")] = None,
    port_range: Annotated[str | None, typer.Option(help="such as 17000-17100; default: any free ports")] = None,
    max_restarts: Annotated[int | None, typer.Option(min=0, help="how often what was lost is started anew")] = None,
    min_workers: Annotated[int | None, typer.Option(min=1, help="go on with so few when some are lost")] = None,
    log_dir: Annotated[str | None, typer.Option(help="folder for each role's log, here; default RUN/logs")] = None,
    mpirun: Annotated[str, typer.Option(help="mpi: the mpirun command, with options if need be")] = "mpirun",
    nodes: Annotated[int | None, typer.Option(min=1, help="slurm, sge, pbs, yarn, ray: how many hosts")] = None,
    time: Annotated[str | None, typer.Option(help="slurm, sge, pbs: the time limit, such as 1:30:00")] = None,
    partition: Annotated[str | None, typer.Option(help="slurm, sge, pbs, yarn: the partition or queue")] = None,
    account: Annotated[str | None, typer.Option(help="slurm, sge, pbs: who pays")] = None,
    gpus_per_node: Annotated[int | None, typer.Option(min=1, help="slurm, sge, pbs")] = None,
    pe: Annotated[str | None, typer.Option(help="sge: the parallel environment")] = None,
    directive: Annotated[
        list[str] | None, typer.Option(help="slurm, sge, pbs: a further line of the script, such as --qos=high")
    ] = None,
    detach: Annotated[bool, typer.Option("--detach", help="slurm, sge, pbs: submit, and do not follow")] = False,
    cpus_per_worker: Annotated[int | None, typer.Option(min=1, help="k8s, yarn, ray: cores of a trainer")] = None,
    gpus_per_worker: Annotated[int | None, typer.Option(min=1, help="k8s, yarn, ray: GPUs of a trainer")] = None,
    memory_per_worker: Annotated[int | None, typer.Option(min=1, help="k8s, yarn, ray: MB of a trainer")] = None,
    image: Annotated[str | None, typer.Option(help="k8s: the image of the pods")] = None,
    namespace: Annotated[str | None, typer.Option(help="k8s: the namespace")] = None,
    volume_claim: Annotated[str | None, typer.Option(help="k8s: a volume for data and runs")] = None,
    apply: Annotated[bool, typer.Option("--apply", help="k8s: give the manifests to kubectl; default: print")] = False,
    resource_manager: Annotated[str | None, typer.Option(help="yarn: such as http://rm:8088")] = None,
    address: Annotated[str | None, typer.Option(help="ray: the cluster; default: found, or started here")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="say what would be done, and do nothing")] = False,
) -> None:
    """Train on many hosts: the same command as on one, behind --."""
    from phalanx.api.request import command_line
    from phalanx.cli.main import request_from
    from phalanx.launch import plan as planning
    from phalanx.launch.launchers.batch_script import BatchOptions
    from phalanx.launch.launchers.manifests import KubernetesOptions
    from phalanx.launch.launchers.worker_resources import WorkerResources
    from phalanx.launch.remote_shell import Sync
    from phalanx.net.interfaces import allowed_ports, parse_ports
    from phalanx.roles.lifeline import hold_lifeline

    hold_lifeline()
    given = {**_train_parameters(words)}
    _add(given, workers, servers, log_dir)
    if evaluator_on:
        _add_evaluator(given)
    new_host = None if launcher in planning.ALLOCATED else evaluator_on
    hosts, alone = planning.find_hosts(hostfile, ips, servers_on, new_host)
    chosen = launcher or ("ssh" if hosts else "local")
    if chosen not in LAUNCHERS:
        raise UserError(f"there is no launcher {chosen!r}", why="unknown name", remedy=nearest(chosen, LAUNCHERS))
    planned = planning.LaunchPlan(
        request=request_from(given),
        launcher=chosen,
        command=command_line(),
        hosts=tuple(hosts),
        servers_on=tuple(alone),
        evaluator_on=evaluator_on,
        python=python,
        ssh=planning.parse_program(ssh, "--ssh"),
        mpirun=planning.parse_program(mpirun, "--mpirun"),
        sync=Sync(Path.cwd(), sync_dst_dir) if sync_dst_dir else None,
        setup=setup,
        iface=iface,
        ports=parse_ports(port_range) if port_range else allowed_ports(),
        max_restarts=max_restarts,
        min_workers=min_workers,
        batch=BatchOptions(nodes, time, partition, account, gpus_per_node, pe, tuple(directive or ()), detach),
        needs=WorkerResources(cpus_per_worker, gpus_per_worker, memory_per_worker),
        kubernetes=KubernetesOptions(image, namespace, volume_claim, apply),
        resource_manager=resource_manager,
        ray_address=address,
        dry_run=dry_run,
    )
    raise typer.Exit(import_module(LAUNCHERS[chosen]).start(planned, Console(stderr=not dry_run)))


def parse_train(words: Sequence[str]) -> Mapping[str, Any]:
    """The parameters that `phalanx train` would see."""
    from phalanx.cli.main import app as phalanx

    group = typer.main.get_group(phalanx)
    return group.commands["train"].make_context("train", list(words)).params


def _train_parameters(words: Sequence[str]) -> Mapping[str, Any]:
    """The parameters of the `train` command that stands behind `--`."""
    if not words or words[0] != "train":
        raise UserError(
            f"{words[0]!r} cannot be launched" if words else "there is nothing to launch",
            why="what follows -- is the command that would run on one machine",
            remedy="phalanx launch -n 2 -- train digits",
        )
    return parse_train(words[1:])


def _add(given: dict[str, Any], workers: int | None, servers: int | None, log_dir: str | None) -> None:
    """Add -n, -s and --log-dir to the parameters of `train`, and refuse contradictions."""
    options = {"workers": ("-n", workers), "servers": ("-s", servers), "log_dir": ("--log-dir", log_dir)}
    for flag, (option, value) in options.items():
        if value is not None and given[flag] not in (None, value):
            raise UserError(
                f"{option} {value} contradicts --{flag.replace('_', '-')} {given[flag]}",
                why="both say the same thing",
                remedy="give one",
            )
        given[flag] = given[flag] if value is None else value
    if not servers:
        return
    method = given["update_method"]
    if method not in (None, "pserver"):
        raise UserError(
            f"-s {servers} does not go together with --update-method {method}",
            why="only pserver has parameter servers",
            remedy="leave -s out, or --update-method pserver",
        )
    if not any(word.startswith("exchange.method=") for word in given["settings"] or []):
        given["update_method"] = "pserver"


def _add_evaluator(given: dict[str, Any]) -> None:
    """A job with --evaluator-on has an evaluator."""
    if given["evaluator"] is False:
        raise UserError(
            "--evaluator-on does not go together with --no-evaluator",
            why="it says where the evaluator runs",
            remedy="leave one out",
        )
    given["evaluator"] = True


@app.command()
def status(run: Run = None) -> None:
    """Show every role of a job: host, state, step, speed, when it was last heard of."""
    from phalanx.commands.status import show_status

    show_status(Console(), run)


@app.command()
def stop(run: Run = None) -> None:
    """End a job from any terminal of its launching host: trainers save first; a second stop ends it at once."""
    from phalanx.commands.stop import stop_job

    stop_job(Console(), run)


@app.command()
def logs(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="a run's folder")],
    role: Annotated[str | None, typer.Argument(metavar="[ROLE]", help="such as trainer-1; default: all")] = None,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="go on until the job ends")] = False,
) -> None:
    """Print what the roles of a job have printed."""
    from phalanx.commands.logs import print_logs

    print_logs(run, role, follow=follow, out=sys.stdout)


@app.command(hidden=True)
def agent() -> None:
    """What the launcher starts on each host; it speaks on its standard input and output."""
    from phalanx.launch.agent import main

    main()
