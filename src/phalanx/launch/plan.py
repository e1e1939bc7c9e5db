"""A launch before any host is contacted: the request, the hosts, and the options of each launcher."""

import os
import shlex
from dataclasses import dataclass, field
from pathlib import Path

from phalanx.errors import UserError
from phalanx.launch.hosts import Host, parse_host, parse_hosts, read_hostfile, refuse_twice
from phalanx.launch.job import Job, new_group_request, policy_for, role_counts
from phalanx.launch.launchers.batch_script import BatchOptions
from phalanx.launch.launchers.kubernetes_options import KubernetesOptions
from phalanx.launch.launchers.worker_resources import WorkerResources
from phalanx.launch.placement import DedicatedHosts, Placement, place
from phalanx.launch.remote_shell import Sync
from phalanx.roles.request import Request

LAST = "last"  # --evaluator-on last: the last of the hosts
# Launchers that get their hosts from an allocation.
ALLOCATED = ("slurm", "sge", "pbs", "srun", "qrsh")


@dataclass(frozen=True)
class LaunchPlan:
    """All options of `phalanx launch`. Each launcher uses its part."""

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
        """The job for a run folder."""
        config = self.request.config
        return Job(
            run=run,
            request=self.request.to_data(),
            new_group_request=new_group_request(self.request),
            counts=role_counts(config),
            policy=policy_for(config.exchange, self.max_restarts, self.min_workers),
            command=self.command,
            launcher=self.launcher,
            resumes=self.request.resume is not None,
            at_step=self.request.at_step,
            log_dir=config.train.log_dir,
            cwd="." if self.sync else os.getcwd(),  # noqa: PTH109 - as the user spells it
            setup=self.setup,
            iface=self.iface,
            ports=self.ports,
            dedicated=self.dedicated,
        )

    @property
    def dedicated(self) -> DedicatedHosts:
        """The hosts without trainers."""
        if self.evaluator_on is None:
            return DedicatedHosts(self.servers_on)
        names = [host.name for host in self.hosts]
        last = self.evaluator_on == LAST and bool(names)
        name = names[-1] if last else parse_host(self.evaluator_on, "--evaluator-on").name
        if name not in names:
            raise UserError(
                f"--evaluator-on {name} is none of the job's hosts",
                why=f"they are: {', '.join(names[:8])}{' …' if len(names) > 8 else ''}" if names else "none is named",
                remedy=f"name one of them, or --evaluator-on {LAST}",
            )
        return DedicatedHosts(self.servers_on, names.index(name))

    def placements(self) -> list[Placement]:
        """The placement of all roles, if every host can be used."""
        return place(self.hosts, role_counts(self.request.config), self.dedicated)


def find_hosts(
    hostfile: Path | None, ips: str | None, servers_on: str | None, evaluator_on: str | None = None
) -> tuple[list[Host], list[int]]:
    """The job's hosts, and the numbers of those that run only servers.

    --servers-on and --evaluator-on may name hosts of the list or others. If these are all, trainers run on this host.
    """
    if hostfile is not None and ips is not None:
        raise UserError("-H and --ips exclude each other", why="both name the hosts", remedy="give one of them")
    hosts = read_hostfile(hostfile) if hostfile else parse_hosts(_split(ips), "--ips") if ips else []
    server_hosts = [_number_of(host, hosts) for host in parse_hosts(_split(servers_on or ""), "--servers-on")]
    dedicated = set(server_hosts)
    if evaluator_on is not None and evaluator_on != LAST:
        dedicated.add(_number_of(parse_host(evaluator_on, "--evaluator-on"), hosts))
    if hosts and len(dedicated) == len(hosts):
        hosts.insert(0, Host("localhost"))
        server_hosts = [number + 1 for number in server_hosts]
    return refuse_twice(hosts, "the hosts"), server_hosts


def _number_of(host: Host, hosts: list[Host]) -> int:
    """The number of a host. A new one is added to the list."""
    known = [number for number, one in enumerate(hosts) if one.name == host.name]
    if not known:
        hosts.append(host)
    return known[0] if known else len(hosts) - 1


def _split(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def parse_program(text: str, option: str) -> tuple[str, ...]:
    """An option's value as a command with its own options."""
    try:
        words = tuple(shlex.split(text))
    except ValueError as error:
        raise UserError(f"{option} {text!r} cannot be read", why=str(error), remedy="close the quotes") from error
    if not words:
        raise UserError(f"{option} names no program", why="it is empty", remedy=f"leave {option} out, or name one")
    return words
