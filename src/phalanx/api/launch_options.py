"""The options of `phalanx launch`, from a command line or from Python, and the plan that they make with a request."""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from phalanx.errors import UserError, nearest

if TYPE_CHECKING:
    from rich.console import Console

    from phalanx.launch.launchers.kubernetes_options import KubernetesOptions
    from phalanx.roles.request import Request

# The module of each launcher, with `start(plan, console) -> exit code`. With `plan.dry_run` it starts nothing.
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


_LISTS = ("directive", "image_pull_secret", "node_selector", "toleration", "env", "label")


@dataclass(frozen=True)
class LaunchOptions:
    """Plain data, as JSON can hold it. -n, -s and --log-dir are flags of `train` too, and are not here."""

    hostfile: str | None = None
    ips: str | None = None
    launcher: str | None = None
    servers_on: str | None = None
    evaluator_on: str | None = None
    sync_dst_dir: str | None = None
    setup: str = ""
    python: str | None = None
    ssh: str = "ssh"
    iface: str | None = None
    port_range: str | None = None
    max_restarts: int | None = None
    min_workers: int | None = None
    mpirun: str = "mpirun"
    nodes: int | None = None
    time: str | None = None
    partition: str | None = None
    account: str | None = None
    gpus_per_node: int | None = None
    pe: str | None = None
    directive: tuple[str, ...] = ()
    detach: bool = False
    cpus_per_worker: int | None = None
    gpus_per_worker: int | None = None
    memory_per_worker: int | None = None
    image: str | None = None
    namespace: str | None = None
    volume_claim: str | None = None
    run_as: int | None = None
    image_pull_secret: tuple[str, ...] = ()
    node_selector: tuple[str, ...] = ()
    toleration: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    label: tuple[str, ...] = ()
    queue: str | None = None
    priority_class: str | None = None
    patch: str | None = None
    gang: bool = False
    resume_in_pods: str | None = None  # where pods find the run that is resumed, if this host has only a copy
    resource_manager: str | None = None
    address: str | None = None
    dry_run: bool = False

    @staticmethod
    def of(given: Mapping[str, Any]) -> "LaunchOptions":
        """The options among the parameters of a function."""
        chosen = {name: given[name] for name in LaunchOptions.__dataclass_fields__ if given.get(name) is not None}
        for name in ("hostfile", "sync_dst_dir", "patch"):
            if name in chosen:
                chosen[name] = str(chosen[name])
        return LaunchOptions(**chosen | {name: tuple(chosen.get(name, ())) for name in _LISTS})


def add_to_flags(given: dict[str, Any], options: LaunchOptions, *, workers: int | None, servers: int | None) -> None:
    """Add -n, -s and --evaluator-on to the parameters of `train`, and refuse contradictions."""
    for flag, option, value in (("workers", "-n", workers), ("servers", "-s", servers)):
        set_flag(given, flag, option, value)
    if servers:
        _use_pserver(given, servers)
    if options.evaluator_on:
        if given["evaluator"] is False:
            raise UserError(
                "--evaluator-on cannot be used with --no-evaluator",
                why="it names the evaluator's host",
                remedy="leave one out",
            )
        given["evaluator"] = True


def set_flag(given: dict[str, Any], flag: str, option: str, value: Any) -> None:
    """Set a flag of `train` that an option of `launch` stands for."""
    if value is not None and given[flag] not in (None, value):
        raise UserError(
            f"{option} {value} contradicts --{flag.replace('_', '-')} {given[flag]}",
            why="both set the same value",
            remedy="give one of them",
        )
    given[flag] = given[flag] if value is None else value


def _use_pserver(given: dict[str, Any], servers: int) -> None:
    method = given["update_method"]
    if method not in (None, "pserver"):
        raise UserError(
            f"-s {servers} cannot be used with --update-method {method}",
            why="only pserver has parameter servers",
            remedy="leave -s out, or --update-method pserver",
        )
    if not _names_method(given["settings"]):
        given["update_method"] = "pserver"


def _names_method(settings: Any) -> bool:
    """Whether settings, as words or as a dictionary, name an update method."""
    if isinstance(settings, Mapping):
        return "exchange.method" in settings or "method" in (settings.get("exchange") or {})
    return any(word.startswith("exchange.method=") for word in settings or [])


def start_launch(request: "Request", options: LaunchOptions, console: "Console") -> int:
    """Launch the job to its end. Returns its exit code."""
    from phalanx.api.folds import refuse_folds
    from phalanx.api.launcher_options import refuse_options
    from phalanx.api.start import refuse_early
    from phalanx.launch import plan as planning
    from phalanx.launch.launchers.batch_script import BatchOptions
    from phalanx.launch.launchers.worker_resources import WorkerResources
    from phalanx.launch.remote_shell import Sync
    from phalanx.net.interfaces import allowed_ports, parse_ports

    refuse_folds(request.config, "phalanx launch")
    new_host = None if options.launcher in planning.ALLOCATED else options.evaluator_on
    hostfile = Path(options.hostfile) if options.hostfile else None
    hosts, server_hosts = planning.find_hosts(hostfile, options.ips, options.servers_on, new_host)
    chosen = options.launcher or ("ssh" if hosts else "local")
    if chosen not in LAUNCHERS:
        raise UserError(f"there is no launcher {chosen!r}", why="unknown name", remedy=nearest(chosen, LAUNCHERS))
    refuse_options(options, chosen)
    plan = planning.LaunchPlan(
        request=request,
        launcher=chosen,
        command=request.command,
        hosts=tuple(hosts),
        servers_on=tuple(server_hosts),
        evaluator_on=options.evaluator_on,
        python=options.python,
        ssh=planning.parse_program(options.ssh, "--ssh"),
        mpirun=planning.parse_program(options.mpirun, "--mpirun"),
        sync=Sync(Path.cwd(), options.sync_dst_dir) if options.sync_dst_dir else None,
        setup=options.setup,
        iface=options.iface,
        ports=parse_ports(options.port_range) if options.port_range else allowed_ports(),
        max_restarts=options.max_restarts,
        min_workers=options.min_workers,
        batch=BatchOptions(
            options.nodes,
            options.time,
            options.partition,
            options.account,
            options.gpus_per_node,
            options.pe,
            tuple(options.directive),
            options.detach,
        ),
        needs=WorkerResources(options.cpus_per_worker, options.gpus_per_worker, options.memory_per_worker),
        kubernetes=kubernetes_options(options),
        resource_manager=options.resource_manager,
        ray_address=options.address,
        dry_run=options.dry_run,
    )
    refuse_early(request.config)
    code: int = import_module(LAUNCHERS[chosen]).start(plan, console)
    return code


def kubernetes_options(options: LaunchOptions) -> "KubernetesOptions":
    """The part of the options that is Kubernetes' own."""
    from phalanx.launch.launchers.kubernetes_options import USER, KubernetesOptions

    return KubernetesOptions(
        image=options.image,
        namespace=options.namespace,
        claim=options.volume_claim,
        run_as=USER if options.run_as is None else options.run_as,
        pull_secrets=tuple(options.image_pull_secret),
        node_selector=tuple(options.node_selector),
        tolerations=tuple(options.toleration),
        env=tuple(options.env),
        labels=tuple(options.label),
        queue=options.queue,
        priority_class=options.priority_class,
        patch=options.patch,
        gang=options.gang,
        resume=options.resume_in_pods,
    )
