"""What `phalanx launch` is asked for: a request, hosts, and what each launcher needs. Refuses what cannot work."""

import os
import shlex
from dataclasses import dataclass, field
from pathlib import Path

from phalanx.errors import UserError
from phalanx.launch.hosts import Host, parse_host, parse_hosts, read_hostfile, refuse_twice
from phalanx.launch.job import Job
from phalanx.launch.launchers.batch_script import BatchOptions
from phalanx.launch.launchers.manifests import KubernetesOptions
from phalanx.launch.launchers.worker_resources import WorkerResources
from phalanx.launch.local_job import again_with, policy_of, wanted_roles
from phalanx.launch.placement import DedicatedHosts, Placement, place
from phalanx.launch.remote_shell import Sync
from phalanx.roles.request import Request

LAST = "last"  # --evaluator-on: the last of the hosts, whatever its name
# Launchers that find the hosts in an allocation.
ALLOCATED = ("slurm", "sge", "pbs", "srun", "qrsh")


@dataclass(frozen=True)
class LaunchPlan:
    """What `phalanx launch` was asked for. Launchers take what concerns them."""

    request: Request
    launcher: str
    command: str
    hosts: tuple[Host, ...] = ()
    servers_on: tuple[int, ...] = ()
    evaluator_on: str | None = None  # a host's name, or LAST
    python: str | None = None
    ssh: tuple[str, ...] = ("ssh",)
    sync: Sync | None = None
    setup: str = ""
    iface: str | None = None
    ports: tuple[int, int] | None = None
    max_restarts: int | None = None
    min_workers: int | None = None
    mpirun: tuple[str, ...] = ("mpirun",)
    batch: BatchOptions = field(default_factory=BatchOptions)
    needs: WorkerResources = field(default_factory=WorkerResources)
    kubernetes: KubernetesOptions = field(default_factory=KubernetesOptions)
    resource_manager: str | None = None  # of YARN
    ray_address: str | None = None
    dry_run: bool = False

    def job(self, run: Path) -> Job:
        """The job for a run's folder."""
        config = self.request.config
        return Job(
            run=run,
            request=self.request.to_data(),
            again=again_with(self.request),
            wanted=wanted_roles(config),
            policy=policy_of(config.exchange, self.max_restarts, self.min_workers),
            command=self.command,
            launcher=self.launcher,
            resumes=self.request.resume is not None,
            at_step=self.request.at_step,
            log_dir=config.train.log_dir,
            cwd="." if self.sync else os.getcwd(),  # noqa: PTH109 - as the user spells it
            setup=self.setup,
            iface=self.iface,
            ports=self.ports,
            apart=self.apart,
        )

    @property
    def apart(self) -> DedicatedHosts:
        """The hosts without trainers, now that all are known."""
        if self.evaluator_on is None:
            return DedicatedHosts(self.servers_on)
        names = [host.name for host in self.hosts]
        last = self.evaluator_on == LAST and bool(names)
        wanted = names[-1] if last else parse_host(self.evaluator_on, "--evaluator-on").name
        if wanted not in names:
            raise UserError(
                f"--evaluator-on {wanted} is none of the job's hosts",
                why=f"they are: {', '.join(names[:8])}{' …' if len(names) > 8 else ''}" if names else "none is named",
                remedy=f"name one of them, or --evaluator-on {LAST}",
            )
        return DedicatedHosts(self.servers_on, names.index(wanted))

    def placements(self) -> list[Placement]:
        """Where each role will be, if every host answers."""
        wanted = wanted_roles(self.request.config)
        return place(self.hosts, wanted, self.apart)


def find_hosts(
    hostfile: Path | None, ips: str | None, servers_on: str | None, evaluator_on: str | None = None
) -> tuple[list[Host], list[int]]:
    """The job's hosts, and which of them are for servers alone.

    Those of --servers-on and --evaluator-on may be new or of the list; where that is all, trainers run here.
    """
    if hostfile is not None and ips is not None:
        raise UserError("-H does not go together with --ips", why="both name the hosts", remedy="give one of them")
    hosts = read_hostfile(hostfile) if hostfile else parse_hosts(_split(ips), "--ips") if ips else []
    alone = [_number_of(host, hosts) for host in parse_hosts(_split(servers_on or ""), "--servers-on")]
    apart = set(alone)
    if evaluator_on is not None and evaluator_on != LAST:
        apart.add(_number_of(parse_host(evaluator_on, "--evaluator-on"), hosts))
    if hosts and len(apart) == len(hosts):
        hosts.insert(0, Host("localhost"))
        alone = [number + 1 for number in alone]
    return refuse_twice(hosts, "the hosts"), alone


def _number_of(host: Host, hosts: list[Host]) -> int:
    """Which of the hosts it is; one that is not among them joins them."""
    known = [number for number, one in enumerate(hosts) if one.name == host.name]
    if not known:
        hosts.append(host)
    return known[0] if known else len(hosts) - 1


def _split(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def parse_program(text: str, option: str) -> tuple[str, ...]:
    """The command that an option names, which may have options of its own."""
    try:
        words = tuple(shlex.split(text))
    except ValueError as error:
        raise UserError(f"{option} {text!r} cannot be read", why=str(error), remedy="close the quotes") from error
    if not words:
        raise UserError(f"{option} names no program", why="it is empty", remedy=f"leave {option} out, or name one")
    return words
