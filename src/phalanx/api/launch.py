"""`phalanx.launch`: the command `phalanx launch` as a function."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from os import PathLike
from typing import Any, Unpack

from phalanx.api.arguments import refuse_unknown
from phalanx.api.flags import PathText, TrainFlags
from phalanx.api.launch_options import LAUNCHERS, LaunchOptions, add_to_flags
from phalanx.api.recipe import Recipe
from phalanx.api.run import Run
from phalanx.api.session import make_console, refuse_rank, run_in_job
from phalanx.api.train import request_of
from phalanx.config.flags import FLAGS
from phalanx.errors import UserError, nearest

_COMMAND_ONLY = ("k8s",)  # the run folder is in the cluster
Hosts = Sequence[str] | str


@refuse_unknown
def launch(
    recipe: "str | PathLike[str] | Recipe | None" = None,
    *,
    hosts: Hosts | None = None,
    hostfile: PathText | None = None,
    launcher: str | None = None,
    servers_on: Hosts | None = None,
    evaluator_on: str | None = None,
    sync_dst_dir: str | None = None,
    setup: str = "",
    python: str | None = None,
    ssh: str = "ssh",
    iface: str | None = None,
    port_range: str | None = None,
    mpirun: str = "mpirun",
    nodes: int | None = None,
    time: str | None = None,
    partition: str | None = None,
    account: str | None = None,
    gpus_per_node: int | None = None,
    pe: str | None = None,
    directive: Sequence[str] = (),
    detach: bool = False,
    cpus_per_worker: int | None = None,
    gpus_per_worker: int | None = None,
    memory_per_worker: int | None = None,
    resource_manager: str | None = None,
    address: str | None = None,
    settings: Mapping[str, Any] | None = None,
    out: PathText | None = None,
    resume: "str | PathLike[str] | Run | bool | None" = None,
    at: str | None = None,
    init_from: "str | PathLike[str] | Run | None" = None,
    accept_code: str | None = None,
    progress: bool | None = None,
    **flags: Unpack[TrainFlags],
) -> Run:
    """Train on many hosts, as `phalanx launch` does. Returns the run when the job has ended.

    Takes all arguments of `phalanx.train`, and says where the job runs. `workers` and `servers` count over all hosts.
    The job ends with this process. Ctrl-C saves a checkpoint and returns the unfinished run.

    >>> run = phalanx.launch("digits", workers=2, epochs=1)       # on this machine; elsewhere: hosts=["node1", "node2"]
    >>> run.config.exchange.workers, run.finished
    (2, True)

    Args:
        recipe: the name of a recipe, a YAML file, or a Recipe.
        hosts: host names for ssh or mpi, such as ["node1", "user@node2:2222"].
        hostfile: a file with a host a line, such as: node1 slots=8.
        launcher: local, ssh, mpi, slurm, sge, pbs, srun, qrsh, yarn or ray. Default: ssh where hosts are named.
        servers_on: hosts for parameter servers alone. Default: beside trainers.
        evaluator_on: a host for the evaluator alone, or "last".
        sync_dst_dir: send the current directory to this folder of each host first, by rsync.
        setup: a shell command to run once on each host first.
        python: the interpreter on the hosts.
        ssh: the ssh command, with its options.
        iface: the network interface.
        port_range: such as "17000-17100". Default: any free ports.
        mpirun: the mpirun command, with its options.
        nodes: slurm, sge, pbs, qrsh, yarn, ray: the number of hosts.
        time: slurm, sge, pbs, yarn: the time limit, such as "1:30:00".
        partition: slurm, sge, pbs, yarn: the partition or queue.
        account: slurm, sge, pbs: the account.
        gpus_per_node: slurm, sge, pbs: GPUs of a host.
        pe: sge: the parallel environment.
        directive: slurm, sge, pbs: further lines of the script, such as ["--qos=high"].
        detach: slurm, sge, pbs: submit the job and return at once.
        cpus_per_worker: yarn, ray: cores of a trainer.
        gpus_per_worker: yarn, ray: GPUs of a trainer.
        memory_per_worker: yarn, ray: MB of a trainer.
        resource_manager: yarn: such as "http://rm:8088".
        address: ray: the cluster. Default: one that is found, or started here.
        settings: any setting, as in `phalanx.train`.
        out: the run folder.
        resume: a run to continue.
        at: with `resume`: from which checkpoint.
        init_from: start from these weights.
        accept_code: with `resume`, if your own code has changed: "run" or "new".
        progress: show progress. Default: in a terminal and in a notebook.
        **flags: the flags of `phalanx.train`, by the same names.
    """
    given = dict(locals())
    refuse_rank()
    given |= {flag: given["flags"].get(flag) for flag in FLAGS}
    _refuse_launcher(launcher)
    options = LaunchOptions.of({**given, "ips": _names(hosts), "servers_on": _names(servers_on)})
    add_to_flags(given, options, workers=None, servers=given["servers"])
    shown = {name: value for name, value in given.items() if name not in ("recipe", "flags", "progress")}
    request = request_of("launch", recipe, {**shown, **_unchanged(shown)})
    return run_in_job(request, asdict(options), make_console(progress))


def _names(hosts: Hosts | None) -> str | None:
    """Hosts, separated by commas."""
    return hosts if hosts is None or isinstance(hosts, str) else ",".join(hosts)


def _unchanged(given: Mapping[str, Any]) -> dict[str, None]:
    """Options at their defaults, which are left out of the record of the call."""
    defaults = asdict(LaunchOptions())
    return dict.fromkeys(name for name in given if name in defaults and given[name] == defaults[name])


def _refuse_launcher(launcher: str | None) -> None:
    known = [name for name in LAUNCHERS if name not in _COMMAND_ONLY]
    if launcher in _COMMAND_ONLY:
        raise UserError(
            f"phalanx.launch() has no launcher {launcher!r}",
            why="its run folder is in the cluster, so there is no Run to return",
            remedy=f"phalanx launch --launcher {launcher} on the command line",
        )
    if launcher is not None and launcher not in LAUNCHERS:
        raise UserError(f"there is no launcher {launcher!r}", why="unknown name", remedy=nearest(launcher, known))
